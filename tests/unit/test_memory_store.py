"""What the in-memory double has beyond the contract it shares with PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from outbox_core.errors import NotInTransaction
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.stores.memory import MemoryStore, MemoryTransaction
from outbox_core.table import TableName

pytestmark = pytest.mark.asyncio

ORDERS = Outbox("orders_outbox")


async def test_tables_are_apart() -> None:
    store, message = MemoryStore(), Message("a.b.v1", 1)
    async with store.transaction() as tx:
        await ORDERS.enqueue(tx, message)
        assert await Outbox("billing.orders_outbox").count(tx) == 0
        await Outbox("billing.orders_outbox").enqueue(tx, message)
    async with store.transaction() as tx:
        assert await ORDERS.count(tx) == 1


async def test_stores_are_apart() -> None:
    async with MemoryStore().transaction() as tx:
        await ORDERS.enqueue(tx, Message("a.b.v1", 1))
    async with MemoryStore().transaction() as tx:
        assert await ORDERS.count(tx) == 0


async def test_the_clock_can_be_moved() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    store, message = MemoryStore(clock=lambda: now), Message("a.b.v1", 1, delay=timedelta(minutes=5))
    async with store.transaction() as tx:
        began, now = now, now + timedelta(hours=1)
        await ORDERS.enqueue(tx, message)
        row = await ORDERS.get(tx, message.event_id)
    assert row is not None
    assert (row.created_at, row.available_at) == (began, now + timedelta(minutes=5))


async def test_hints_go_out_at_commit_alone() -> None:
    told: list[TableName] = []
    store = MemoryStore(on_hint=told.append)
    abandoned = MemoryTransaction(store)
    await Outbox("orders_outbox").enqueue(abandoned, Message("a.b.v1", 1))
    abandoned.end(commit=False)
    assert told == []
    async with store.transaction() as tx:
        await Outbox("orders_outbox").enqueue(tx, Message("a.b.v1", 1))
        assert told == []
    assert told == [TableName("public", "orders_outbox")]


async def test_a_listener_hears_the_hints_of_its_own_tables_alone() -> None:
    store, heard = MemoryStore(), list[TableName | None]()
    store.connect().listen([TableName("public", "orders_outbox")], heard.append)
    async with store.transaction() as tx:
        await Outbox("bills_outbox").enqueue(tx, Message("a.b.v1", 1))
        await Outbox("orders_outbox").enqueue(tx, Message("a.b.v1", 1))
    assert heard == [TableName("public", "orders_outbox")]


async def test_an_ended_transaction_takes_nothing_more() -> None:
    store = MemoryStore()
    async with store.transaction() as tx:
        pass
    with pytest.raises(NotInTransaction, match=r"public\.orders_outbox outside a transaction"):
        await ORDERS.enqueue(tx, Message("a.b.v1", 1))
    with pytest.raises(NotInTransaction, match="has already ended"):
        tx.end(commit=True)


async def test_the_opt_out_does_not_reach_into_an_ended_transaction() -> None:
    store = MemoryStore()
    async with store.transaction() as tx:
        pass
    with pytest.raises(NotInTransaction):
        await ORDERS.enqueue(tx, Message("a.b.v1", 1), allow_autocommit=True)
    async with store.transaction() as tx:
        assert await ORDERS.count(tx) == 0
