"""Trouble with the database: what is acknowledged is put on record when it is over, and a drain survives it, too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outbox_core.errors import (
    PermissionDenied,
    SchemaMissing,
    StorageError,
    StorageTimeout,
    StorageUnavailable,
)
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.store import Lease, Tick
from outbox_core.stores.memory.store import MemoryStore
from outbox_core.table import TableName
from tests.kit.gates import ignore
from tests.kit.memory import OTHER, TABLE, put, rows
from tests.kit.settings import QUICK
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


class Troubled(MemoryStore):
    """Fails a number of times, with this error, to tick or to put on record."""

    def __init__(self, store: MemoryStore, error: StorageError, *, ticks: int = 0, records: int = 0) -> None:
        super().__init__(database=store.database)
        self.error = error
        self.ticks, self.records = ticks, records
        self.only: TableName | None = None
        """The table in trouble, if not all."""
        self.seconds = 0.0
        """How long it takes to fail to put something on record."""

    async def tick(self, table: TableName) -> Tick:
        if self.ticks:
            self.ticks -= 1
            raise self.error
        return await super().tick(table)

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        if self.records and self.only in (None, table):
            await asyncio.sleep(self.seconds)
            self.records -= 1
            raise self.error
        return await super().publish(table, leases, delete=delete)


@pytest.mark.parametrize(
    "error",
    [
        StorageUnavailable("no answer"),
        PermissionDenied(TABLE, "complete messages of", part="relay"),
        SchemaMissing(TABLE),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_write_that_fails_for_all_rows_is_tried_until_it_is_on_record(error: StorageError) -> None:
    store, dispatched = MemoryStore(), 0
    troubled = Troubled(store, error, records=3)

    async def dispatch(_: DispatchedMessage) -> None:
        nonlocal dispatched
        dispatched += 1

    await put(store, *(Message("a.b.v1", number) for number in range(3)))
    async with Relay(lambda: troubled, table=TABLE, dispatcher=dispatch, max_attempts=1, **QUICK):
        await until(lambda: all(row.published_at is not None for row in rows(store)))
    assert dispatched == 3


@pytest.mark.parametrize("times", [1, 2])
async def test_one_write_that_came_too_late_once_is_tried_again_at_once_and_only_then_deferred(
    times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The first time the database may have been unavailable, and have come back before it is asked."""
    store = MemoryStore()
    troubled = Troubled(store, StorageTimeout("not answered in time"), records=times)
    troubled.seconds = 0.2
    await put(store, Message("a.b.v1", 1))
    settings = {**QUICK, "database_timeout": 1.0}
    async with Relay(lambda: troubled, table=TABLE, dispatcher=ignore, **settings):
        await until(lambda: not troubled.records)
        if times == 1:
            await until(lambda: rows(store)[0].published_at is not None, 5.0)
        else:
            await until(lambda: "is not recorded in time" in caplog.text, 5.0)
    assert caplog.text.count("is not recorded in time") == times - 1


async def begun_by(store: MemoryStore, troubled: Troubled) -> int:
    """Drain while dispatches take their time; how many messages were published."""
    await put(store, *(Message("a.b.v1", number) for number in range(5)))

    async def dispatch(_: DispatchedMessage) -> None:
        await asyncio.sleep(0.1)

    settings = {**QUICK, "dispatch_timeout": 5.0}
    relay = Relay(
        lambda: troubled, table=TABLE, dispatcher=dispatch, max_attempts=1, batch_size=2, **settings
    )
    return await relay.run_once()


async def test_a_drain_survives_a_database_that_fails_now_and_then() -> None:
    store = MemoryStore()
    assert await begun_by(store, Troubled(store, StorageUnavailable("a deadlock"), ticks=3)) == 5
    assert [row.published_at is not None for row in rows(store)] == [True] * 5


async def test_a_drain_of_a_database_that_only_fails_ends_with_its_error() -> None:
    store = MemoryStore()
    with pytest.raises(StorageUnavailable, match="a deadlock"):
        async with asyncio.timeout(20.0):
            await begun_by(store, Troubled(store, StorageUnavailable("a deadlock"), ticks=1_000))
    assert [row.attempts for row in rows(store)] == [0] * 5


async def test_a_drain_that_may_not_record_ends_with_that_error_and_other_tables_lose_nothing() -> None:
    store = MemoryStore()
    denied = Troubled(store, PermissionDenied(TABLE, "complete messages of", part="relay"), records=1_000)
    denied.only = TABLE

    async def dispatch(_: DispatchedMessage) -> None:
        await asyncio.sleep(0.02)

    for table in (TABLE, OTHER):
        await put(store, *(Message("a.b.v1", number) for number in range(20)), table=table)
    settings = {**QUICK, "dispatch_timeout": 5.0}
    relay = Relay(lambda: denied, tables=[TABLE, OTHER], dispatcher=dispatch, concurrency=2, **settings)
    with pytest.raises(PermissionDenied):
        async with asyncio.timeout(20.0):
            await relay.run_once()
    others = rows(store, table=OTHER)
    assert any(row.published_at is not None for row in others)
    assert [row for row in others if row.lock_token is not None] == []
    assert {row.attempts for row in others if row.published_at is None} <= {0}
