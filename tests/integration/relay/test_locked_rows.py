"""Somebody keeps a row, or whole tables, locked: it holds up itself and nobody else."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from outbox_core import schema
from outbox_core.errors import StorageUnavailable
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import LeaderGained, LeaderLost, PoolerDetected, Reconnecting
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.store import Claim, Leased
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.integration.relay.bench import QUICK, TABLE, TOPIC, Bench, Gate, until
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Database

pytestmark = pytest.mark.asyncio
MESSAGES = 20
SESSIONS = 4
"""Of a relay of many tables, besides the one for control."""


@asynccontextmanager
async def held(bench: Bench, statement: str, *parameters: object) -> AsyncIterator[list[asyncpg.Record]]:
    """Another session's transaction that has run the statement and does not end before the block does."""
    connection = await asyncpg.connect(bench.writers)
    try:
        async with connection.transaction():
            yield await connection.fetch(statement, *parameters)
    finally:
        await connection.close()


def row_of(which: str) -> str:
    return f"SELECT id FROM {TABLE} WHERE sequence = (SELECT {which}(sequence) FROM {TABLE}) FOR UPDATE"  # noqa: S608


async def become(bench: Bench, seconds: float, **states: int) -> None:
    async def are() -> bool:
        return await bench.states() == states

    await until(are, seconds)


class Counted(Gate):
    """How often each message came."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[bytes]()

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.calls[message.payload] += 1
        await super().dispatch(message)


@pytest.mark.parametrize("fails", [False, True])
async def test_one_locked_row_holds_up_no_others_outcome(bench: Bench, fails: bool) -> None:
    """Neither of those that came with it nor of later ones; nor is any dispatched again."""

    class Failing(Counted):
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            await super().dispatch(message)
            if fails:
                raise ValueError("no")

    gate, ended = Failing(), "dead" if fails else "published"
    async with bench.relay(gate, max_attempts=1, dispatch_timeout=5.0, lock_ttl=30.0) as relay:
        await bench.enqueue(*range(MESSAGES))
        await until(lambda: gate.inside == MESSAGES)
        async with held(bench, row_of("min")):
            gate.opened.set()
            await become(bench, 3.0, **{ended: MESSAGES - 1, "in_flight": 1})
            await bench.enqueue("later")
            await become(bench, 3.0, **{ended: MESSAGES, "in_flight": 1})
            assert (await bench.rows())[0]["state"] == "in_flight"
            assert relay.state == "running"
        await become(bench, 5.0, **{ended: MESSAGES + 1})
    assert len(gate.calls) == MESSAGES + 1
    assert set(gate.calls.values()) == {1}
    assert {row["attempts"] for row in await bench.rows()} == {1}


async def test_a_stop_gives_back_the_others_of_a_locked_row(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(*range(MESSAGES))
    relay = bench.relay(gate, concurrency=1, dispatch_timeout=5.0, lock_ttl=30.0)
    await relay.start()
    await until(lambda: gate.inside == 1)
    await become(bench, 5.0, in_flight=MESSAGES)
    async with held(bench, row_of("max")):
        began = time.monotonic()
        await relay.stop(1.0)
        assert time.monotonic() - began < 3.0
        rows = await bench.rows()
    assert [row["state"] for row in rows] == ["pending"] * (MESSAGES - 1) + ["in_flight"]


async def test_one_that_may_crash_its_relay_does_not_wait_for_a_locked_row(bench: Bench) -> None:
    """It is dispatched when nothing else is on its way; what somebody keeps locked is not on its way any more."""
    gate = Counted()
    async with bench.relay(gate, dispatch_timeout=5.0, lock_ttl=30.0):
        await bench.enqueue("first")
        await until(lambda: gate.inside == 1)
        async with held(bench, row_of("min")):
            gate.opened.set()
            await bench.enqueue("second")
            await become(bench, 3.0, in_flight=1, published=1)
            await bench.enqueue("suspect", delay=timedelta(seconds=60))
            await bench.connection.execute(
                f"UPDATE {TABLE} SET attempts = 2, available_at = now(), lock_token = gen_random_uuid(),"  # noqa: S608
                f" locked_at = now() - interval '1 hour' WHERE sequence = (SELECT max(sequence) FROM {TABLE})"
            )
            await until(lambda: gate.calls[b'"suspect"'] == 1, 5.0)
            await bench.enqueue("ordinary")
            await become(bench, 5.0, in_flight=1, published=3)
        await become(bench, 5.0, published=4)
    assert set(gate.calls.values()) == {1}


async def test_nobody_overtakes_a_first_message_that_somebody_keeps_locked(bench: Bench) -> None:
    arrived: list[object] = []

    async def dispatch(message: DispatchedMessage) -> None:
        arrived.append(message.json())
        if arrived == ["first"]:
            raise ValueError("not yet")

    async def is_due() -> bool:
        return await bench.connection.fetchval(
            f"SELECT available_at < now() FROM {TABLE} ORDER BY sequence LIMIT 1"  # noqa: S608
        )

    async with bench.relay(dispatch, backoff_base=1.5, backoff_cap=1.5):
        await bench.enqueue("first", "second", "third", key="k")
        await until(lambda: arrived == ["first"])
        await become(bench, 3.0, pending=3)
        async with held(bench, row_of("min")):
            await until(is_due)
            for number in range(3):
                await bench.enqueue(number)
                await until(lambda n=number: arrived[-1] == n)
        await until(lambda: len(arrived) == 7)
    assert [one for one in arrived if isinstance(one, str)] == ["first", "first", "second", "third"]


async def test_the_store_tells_which_rows_somebody_keeps_locked(bench: Bench) -> None:
    """Without waiting, and without a lock that stays."""
    await bench.enqueue(*range(3))
    ids: list[UUID] = [row["id"] for row in await bench.connection.fetch(f"SELECT id FROM {TABLE}")]  # noqa: S608
    table = TableName.parse(TABLE)
    store = PostgresStore(bench.dsn, timeout=5.0, takeover=5.0)
    await store.open([table])
    try:
        async with held(bench, row_of("min")) as locked:
            began = time.monotonic()
            assert await store.locked_rows(table, [*ids, uuid4()]) == {locked[0]["id"]}
            assert await store.locked_rows(table, [one for one in ids if one != locked[0]["id"]]) == set()
            assert time.monotonic() - began < 1.0
            async with held(bench, f"SELECT id FROM {TABLE} FOR UPDATE SKIP LOCKED") as free:  # noqa: S608
                assert {row["id"] for row in free} == set(ids) - {locked[0]["id"]}
                assert await store.locked_rows(table, ids) == set(ids)
        assert await store.locked_rows(table, ids) == set()
    finally:
        await store.close()


@pytest.mark.parametrize("pooled", [False, True])
async def test_locked_tables_do_not_take_all_sessions(
    bench: Bench, database: Database, request: pytest.FixtureRequest, pooled: bool
) -> None:
    """Whatever waits for a lock does so for a part of the time that it has, and then others have their turn."""
    if pooled:
        pgbouncer: PgBouncer = request.getfixturevalue("pgbouncer")
        bench.dsn = pgbouncer.dsn(database.name)
    locked, healthy = [f"l{number}_outbox" for number in range(8)], "healthy_outbox"
    for table in (*locked, healthy):
        await schema.create(bench.connection, table)
    arrived = asyncio.Queue[object]()

    async def deliver(message: DispatchedMessage) -> None:
        arrived.put_nowait(message.json())

    async def all_wait() -> bool:
        count: int = await bench.connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return count == SESSIONS

    tables = [*locked, healthy]
    relay = Relay(bench.dsn, tables=tables, dispatcher=deliver, observers=[bench.heard], database_timeout=4.0)
    async with relay:
        await until(lambda: len(bench.heard.of(LeaderGained)) == len(tables))
        async with held(bench, f"LOCK TABLE {', '.join(locked)} IN ACCESS EXCLUSIVE MODE"):
            await until(all_wait, 5.0)
            for number in range(5):
                async with bench.connection.transaction():
                    await Outbox(healthy).enqueue(bench.connection, Message(TOPIC, number))
                async with asyncio.timeout(2.0):
                    assert await arrived.get() == number
        assert not [event for event in bench.heard.of(Reconnecting) if event.table.name == healthy]
        assert relay.state == "running"
    assert bool(bench.heard.of(PoolerDetected)) is pooled


async def test_large_rows_that_somebody_keeps_locked_leave_room_for_others(bench: Bench) -> None:
    gate = Gate()
    async with bench.relay(gate, dispatch_timeout=5.0, lock_ttl=60.0, batch_bytes=2_000):
        await bench.enqueue(*("x" * 900 + str(number) for number in range(8)))
        await until(lambda: gate.inside >= 6)
        async with held(bench, f"SELECT id FROM {TABLE} FOR UPDATE"):  # noqa: S608
            gate.opened.set()
            await bench.enqueue("later")

            async def one_is() -> bool:
                return (await bench.states()).get("published") == 1

            await until(one_is, 5.0)
        await become(bench, 5.0, published=9)


async def test_locked_rows_are_looked_at_once_a_second_whatever_else_is_recorded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, asked, gate = 0, PostgresStore.locked_rows, Gate()

    async def locked_rows(self: PostgresStore, table: TableName, ids: Collection[UUID]) -> set[UUID]:
        nonlocal looks
        looks += 1
        return await asked(self, table, ids)

    monkeypatch.setattr(PostgresStore, "locked_rows", locked_rows)
    async with bench.relay(gate, dispatch_timeout=5.0, lock_ttl=60.0):
        await bench.enqueue("first")
        await until(lambda: gate.inside == 1)
        async with held(bench, row_of("min")):
            gate.opened.set()
            await until(lambda: looks > 0)
            looks, began = 0, time.monotonic()
            for number in range(50):
                await bench.enqueue(number)
                await become(bench, 3.0, in_flight=1, published=number + 1)
            assert looks <= time.monotonic() - began + 2


async def test_what_a_lost_claim_leased_is_given_back_but_for_a_row_that_somebody_keeps_locked(
    bench: Bench,
) -> None:
    """Nor does anybody wait for that one."""
    lost, arrived = asyncio.Event(), list[object]()
    locker = await asyncpg.connect(bench.writers)

    class Losing(PostgresStore):
        async def claim(self, table: TableName, claim: Claim) -> Leased:
            leased = await super().claim(table, claim)
            if leased.count and not lost.is_set():
                lost.set()
                await locker.execute("BEGIN")
                await locker.fetch(row_of("min"))
                raise StorageUnavailable("the database connection was lost")
            return leased

    async def dispatch(message: DispatchedMessage) -> None:
        arrived.append(message.json())

    await bench.enqueue(*range(5))
    store = Losing(bench.dsn, timeout=3.0, takeover=8.0)
    try:
        async with Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=[bench.heard], **QUICK):
            await lost.wait()
            await bench.enqueue("other")
            await until(lambda: set(arrived) == {1, 2, 3, 4, "other"}, 5.0)
            await locker.execute("ROLLBACK")
            await until(lambda: 0 in arrived, 15.0)
    finally:
        await locker.close()
    assert len(arrived) == 6


async def test_a_drain_does_not_wait_for_ever_for_a_key_whose_first_message_somebody_keeps_locked(
    bench: Bench,
) -> None:
    arrived = list[object]()

    async def dispatch(message: DispatchedMessage) -> None:
        arrived.append(message.json())

    await bench.enqueue("first", "second", key="k")
    await bench.enqueue("other")
    async with held(bench, row_of("min")):
        assert await bench.relay(dispatch).drain(timeout=10.0) == 1
    assert arrived == ["other"]
    assert await bench.relay(dispatch).drain(timeout=10.0) == 2
    assert arrived == ["other", "first", "second"]


async def test_a_tables_locked_leader_row_costs_no_other_table_its_leader(bench: Bench) -> None:
    """They share a session, which outlives a wait for a lock."""
    tables = ["a_outbox", "b_outbox"]
    for table in tables:
        await schema.create(bench.connection, table)
    arrived = asyncio.Queue[object]()

    async def deliver(message: DispatchedMessage) -> None:
        arrived.put_nowait(message.json())

    relay = Relay(
        bench.dsn, tables=tables, dispatcher=deliver, observers=[bench.heard],
        database_timeout=1.0, takeover=2.0, dispatch_timeout=2.0,
    )  # fmt: skip
    async with relay:
        await until(lambda: len(bench.heard.of(LeaderGained)) == 2)
        async with held(bench, "SELECT FROM outbox_leader WHERE table_name = 'a_outbox' FOR UPDATE"):
            await until(lambda: bool(bench.heard.of(LeaderLost)), 5.0)
            for number in range(20):
                async with bench.connection.transaction():
                    await Outbox("b_outbox").enqueue(bench.connection, Message(TOPIC, number))
                async with asyncio.timeout(2.0):
                    assert await arrived.get() == number
                await until(lambda n=number: len(bench.heard.of(Reconnecting)) > min(n, 3), 5.0)
        assert {event.table.name for event in bench.heard.of(LeaderLost)} == {"a_outbox"}
