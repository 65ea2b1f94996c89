"""The health of real relays: leading, standing by, without a database, lagging, ended."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from outbox_core.admin_store import Reporting
from outbox_core.errors import StorageError
from outbox_core.meta import DispatchedMessage
from outbox_core.monitor import Monitor, MonitorSettings
from outbox_core.observer import Measured
from outbox_core.relay.health import HealthLimits
from outbox_core.status import Look, TableStatus
from outbox_core.table import TableName
from tests.integration.relay.bench import TABLE, Bench, prepared
from tests.kit.gates import ignore
from tests.kit.samples import status
from tests.kit.waiting import until
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.asyncio
OFTEN = MonitorSettings(interval=0.05)


async def test_a_leader_and_its_stand_by_are_ready(bench: Bench) -> None:
    first, second = bench.relay(ignore, monitor=OFTEN), bench.relay(ignore, monitor=OFTEN)
    assert not first.health().live
    async with first:
        await until(lambda: first.health().tables[0].term is not None)
        async with second:
            await until(lambda: second.health().lag is not None)
            for relay in (first, second):
                health = relay.health()
                assert (health.live, health.ready, health.lagging, health.reasons) == (True, True, False, ())
            assert second.health().tables[0].term is None
    stopped = first.health()
    assert (stopped.live, stopped.ready, stopped.reasons) == (False, False, ("the relay is stopped",))


async def test_what_waits_too_long_or_is_too_much_shows(bench: Bench) -> None:
    held = asyncio.Event()

    async def publish(message: DispatchedMessage) -> None:
        await held.wait()

    await bench.enqueue(*range(3))
    async with bench.relay(publish, monitor=OFTEN, dispatch_timeout=5.0, lock_ttl=30.0) as relay:
        limits = HealthLimits(max_pending=2, max_age=0.0)
        await until(lambda: relay.health(limits).lagging)
        health = relay.health(limits)
        assert (health.live, health.ready) == (True, True)
        assert any("3 messages are pending, more than 2" in reason for reason in health.reasons)
        assert any("the oldest message has waited" in reason for reason in health.reasons)
        assert not relay.health(HealthLimits()).lagging
        held.set()
        await bench.settled()
        await until(lambda: not relay.health(HealthLimits(max_pending=2)).lagging)


async def test_a_relay_without_its_database_lives_and_is_not_ready(private_postgres: PostgresServer) -> None:
    with private_postgres.fresh_database("health") as database:
        async with (
            prepared(database) as bench,
            bench.relay(ignore, monitor=OFTEN, database_timeout=1.0) as relay,
        ):
            await until(lambda: relay.health().ready and relay.health().lag is not None)
            private_postgres.freeze()
            try:
                await until(lambda: not relay.health().ready)
                assert relay.health().live
                assert any("trouble with the database" in reason for reason in relay.health().reasons)
            finally:
                private_postgres.thaw()
            await until(lambda: relay.health().ready, 30.0)


async def test_without_a_monitor_nothing_is_read(bench: Bench) -> None:
    async with bench.relay(ignore, monitor=None) as relay:
        await bench.enqueue(1)
        await bench.settled()
        assert bench.heard.of(Measured) == []
        assert (relay.health().ready, relay.health().lag) == (True, None)


class Troubled:
    """A store whose look fails in every way, and then works."""

    def __init__(self, *outcomes: Exception | TableStatus) -> None:
        self.outcomes = list(outcomes)

    async def status(self, table: TableName, look: Look) -> TableStatus:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_a_look_that_fails_is_told_once_and_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []
    store = Troubled(
        StorageError("no rights"),
        StorageError("no rights"),
        RuntimeError("CANARY"),
        status(),
        StorageError("again"),
    )
    monitor = Monitor(cast("Reporting", store), [TableName.parse(TABLE)], OFTEN, heard.append)
    assert [await monitor.look() for _ in range(5)] == [False, False, False, True, False]
    assert len(heard) == 1
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "no rights",
        "RuntimeError",
        "again",
    ]
