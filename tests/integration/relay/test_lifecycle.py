"""One life: starting, running, stopping, stopped; whatever is called in whichever order, and whoever dies."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import pytest

from outbox_core import schema
from outbox_core.errors import ConfigError, RelayFailed
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Stopped
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.relay.completing.settlement import Settlement
from outbox_core.store import Claim, Leased
from outbox_core.stores.memory import MemoryStore
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.integration.relay.bench import STOPPED_SECONDS, TABLE, Bench, relay_tasks
from tests.kit.gates import Gate, ignore
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until
from tests.services.postgres import Database

pytestmark = pytest.mark.asyncio
CYCLES = int(os.environ.get("OUTBOX_TEST_CYCLES", "60"))
"""Starts and stops on a real database."""


async def test_the_states_of_a_life(bench: Bench) -> None:
    gate = Gate()
    relay = bench.relay(gate, dispatch_timeout=5.0, lock_ttl=30.0)
    assert relay.state == "stopped"
    starting = asyncio.create_task(relay.start())
    await until(lambda: relay.state == "starting")
    await starting
    assert relay.state == "running"
    await bench.enqueue(1)
    await until(lambda: gate.inside == 1)
    stopping = asyncio.create_task(relay.stop(grace=5.0))
    await until(lambda: relay.state == "stopping")
    gate.opened.set()
    await stopping
    assert relay.state == "stopped"
    assert await bench.states() == {"published": 1}
    await bench.nothing_is_left()


async def test_stop_before_start_stop_twice_and_start_again(bench: Bench) -> None:
    relay = bench.relay(ignore)
    await relay.stop()
    await relay.wait()
    for payload in (1, 2):
        await bench.enqueue(payload)
        await relay.start()
        assert await bench.settled() == {"published": payload}
        await asyncio.gather(relay.stop(), relay.stop())
        await relay.stop()
        await relay.wait()
        assert relay.state == "stopped"
    assert len(bench.heard.of(Stopped)) == 2
    await bench.nothing_is_left()


async def test_starting_twice_is_refused_and_harms_nothing(bench: Bench) -> None:
    async with bench.relay(ignore) as relay:
        for again in (relay.start, relay.run, relay.drain, relay.run_once):
            with pytest.raises(
                ConfigError, match="this relay is already running; one object runs once at a time"
            ):
                await again()
        await bench.enqueue(1)
        assert await bench.settled() == {"published": 1}


async def test_wait_waits_for_a_run_in_the_foreground_too(bench: Bench) -> None:
    relay = bench.relay(ignore)
    running = asyncio.create_task(relay.run(signals=False))
    await until(lambda: relay.state == "running", 10)
    waiting = asyncio.create_task(relay.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    await relay.stop(1)
    await asyncio.wait_for(asyncio.gather(running, waiting), 5)


class Failing(PostgresStore):
    """A store with a defect: at some claim it raises what nobody expects."""

    def __init__(self, dsn: str, failing: Callable[[], bool]) -> None:
        super().__init__(dsn, takeover=2.0)
        self._failing = failing

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        if self._failing():
            raise ZeroDivisionError("a defect")
        return await super().claim(table, claim)


async def test_a_dead_inner_task_ends_the_relay_with_its_error(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """No task is left, and what was in dispatch is not left to itself."""
    gate = Gate()
    relay = Relay(
        lambda: Failing(bench.dsn, lambda: gate.inside > 0),
        table=TABLE,
        dispatcher=gate,
        **(QUICK_POSTGRES | {"dispatch_timeout": 5.0, "lock_ttl": 30.0}),
    )
    await bench.enqueue(1)
    await relay.start()
    with pytest.raises(RelayFailed) as raised:
        await relay.wait()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert relay.state == "stopped"
    assert not relay_tasks()
    assert "the relay ended with ZeroDivisionError" in caplog.text
    await bench.nothing_is_left()
    relay = bench.relay(ignore, lock_ttl=8.0)
    async with relay:
        assert await bench.settled(30) == {"published": 1}


async def test_a_dead_dispatch_task_ends_the_relay_with_its_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    await bench.enqueue(1)
    with monkeypatch.context() as patched:
        patched.setattr(Settlement, "settle", defect)
        relay = bench.relay(ignore)
        await relay.start()
        with pytest.raises(RelayFailed) as raised:
            await asyncio.wait_for(relay.wait(), 10)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert relay.state == "stopped"
    assert not relay_tasks()
    await bench.nothing_is_left()


async def test_the_error_reaches_the_end_of_the_block_and_run(bench: Bench) -> None:
    def relay() -> Relay:
        return Relay(
            lambda: Failing(bench.dsn, lambda: True), table=TABLE, dispatcher=ignore, **QUICK_POSTGRES
        )

    with pytest.raises(ZeroDivisionError):
        await relay().run(signals=False)
    started = relay()
    # The check of rights at the start claims, too.
    with pytest.raises(ZeroDivisionError):
        await started.start()
    failing = False
    late = Relay(
        lambda: Failing(bench.dsn, lambda: failing), table=TABLE, dispatcher=ignore, **QUICK_POSTGRES
    )
    with pytest.raises(RelayFailed):  # noqa: PT012 - the end of the block raises
        async with late:
            failing = True
            await until(lambda: late.state == "stopped")


async def test_one_relay_serves_many_tables(bench: Bench, database: Database) -> None:
    tables = [TABLE, "shop.invoices_outbox", "shop.mails_outbox"]
    for table in tables[1:]:
        await schema.create(bench.connection, table)
    for table in tables:
        async with bench.connection.transaction():
            await Outbox(table).enqueue(bench.connection, Message("a.b", table))
    seen: list[str] = []

    async def dispatch(message: DispatchedMessage) -> None:
        seen.append(message.meta.table)

    async with Relay(bench.dsn, tables=tables, dispatcher=dispatch, **QUICK_POSTGRES):
        await until(lambda: sorted(seen) == sorted(tables))
        assert await bench.sessions() <= 5
    await bench.nothing_is_left()


async def test_many_cycles_leave_no_task_session_or_lock(
    bench: Bench, record_property: Callable[[str, object], None]
) -> None:
    relay = bench.relay(ignore)
    before = len(asyncio.all_tasks())
    for cycle in range(CYCLES):
        await bench.enqueue(cycle)
        await relay.start()
        if cycle % 3:
            await bench.settled()
        asked = time.monotonic()
        await relay.stop(grace=1.0)
        assert time.monotonic() - asked < STOPPED_SECONDS, f"the stop of cycle {cycle}"
        assert relay.state == "stopped"
        assert len(asyncio.all_tasks()) == before
    await bench.nothing_is_left()
    assert await relay.drain() >= 0
    assert await bench.states() == {"published": CYCLES}
    record_property("start_stop_cycles", CYCLES)


async def test_five_hundred_cycles_leave_no_task() -> None:
    store = MemoryStore()
    outbox = Outbox(TABLE)
    relay = Relay(lambda: store, table=TABLE, dispatcher=ignore, **QUICK_POSTGRES)
    before = asyncio.all_tasks()
    for cycle in range(500):
        async with store.transaction() as transaction:
            await outbox.enqueue(transaction, Message("a.b", cycle))
        await relay.start()
        await relay.stop(grace=1.0)
        assert asyncio.all_tasks() == before
    await relay.drain()
    assert {row.state for row in store.table(TableName.parse(TABLE)).rows.values()} == {"published"}
