"""Start each server once and print a table: where it came from, its version, how long the start took.

Ends with 1 when a server is missing while `OUTBOX_TEST_REQUIRE=all`, or does not start.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable

from tests.services.kafka import KafkaServer
from tests.services.nats import NatsServer
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.server import Server, StartFailed
from tests.services.session import Services
from tests.services.sources import Missing, missing_is_failure

_KINDS: tuple[type[Server], ...] = (PostgresServer, PgBouncer, KafkaServer, NatsServer, RabbitMQServer)
_ROW = "{:<11} {:<12} {:<9} {:>8}"


def main(kinds: Iterable[type[Server]] = _KINDS) -> int:
    required = missing_is_failure()
    status = 0
    print(_ROW.format("server", "source", "version", "start"))
    with contextlib.closing(Services()) as services:
        for kind in kinds:
            try:
                print(_row(services, kind), flush=True)
            except Missing as missing:
                print(_ROW.format(kind.name, "missing", "-", "-"), f" {missing}", sep="", flush=True)
                status = max(status, int(required))
            except StartFailed as failure:
                print(_ROW.format(kind.name, "failed", "-", "-"), f"\n{failure}", sep="", flush=True)
                status = 1
    return status


def _row(services: Services, kind: type[Server]) -> str:
    if kind is PgBouncer:
        with services.pgbouncer(services.shared(PostgresServer)) as pooler:
            return _describe(pooler)
    return _describe(services.shared(kind))


def _describe(server: Server) -> str:
    version = server.version.split()[0]
    return _ROW.format(server.name, server.source, version, f"{server.start_seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
