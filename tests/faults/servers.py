"""The test suite's servers, with what a run of faults needs besides: a clock to move, a proxy that Kafka knows of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.faults.clocks import Clock, shim
from tests.services.kafka import KafkaServer
from tests.services.postgres import PostgresServer
from tests.services.run import Command


class ClockedPostgres(PostgresServer):
    """Its clock can be moved, where there is a C compiler."""

    def prepare(self) -> None:
        self.clock = Clock(shim(self.folder), self.folder / "clock")
        super().prepare()

    def commands(self) -> Sequence[Command]:
        return [replace(command, environment=self.clock.environment) for command in super().commands()]


class ProxiedKafka(KafkaServer):
    """Has a second listener, `behind_proxy`, whose clients are told to come to `proxy_port`."""

    behind_proxy = 0
    proxy_port = 0

    def prepare(self) -> None:
        self.behind_proxy, self.proxy_port = self._run.free_port(), self._run.free_port()
        super().prepare()
        config = self.folder / "server.properties"
        text = config.read_text()
        for name, port in (("listeners", self.behind_proxy), ("advertised.listeners", self.proxy_port)):
            text = text.replace(f"\n{name}=", f"\n{name}=PROXIED://127.0.0.1:{port},")
        text = text.replace("protocol.map=", "protocol.map=PROXIED:PLAINTEXT,")
        config.write_text(f"{text}\ninter.broker.listener.name=PLAINTEXT\n")
