"""A relay has at most ``concurrency`` dispatches under way, and a destination that hangs leaves room for the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from outbox_core.dispatchers.router import Router
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.stores.memory import MemoryStore
from outbox_core.stores.memory.database import MemoryRow
from outbox_core.table import TableName
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio

TABLES = ["shop.orders_outbox", "shop.mails_outbox"]
LEAVES = ["red", "green", "blue"]
PATIENT: dict[str, Any] = QUICK_POSTGRES | {"dispatch_timeout": 20.0, "lock_ttl": 60.0}


class Count:
    """What is under way at this moment, over all destinations, and what came through."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most = 0
        self.done: Counter[str] = Counter()


class Leaf:
    """A destination that takes its time, or never answers."""

    def __init__(self, name: str, count: Count, *, hangs: bool = False) -> None:
        self._name = name
        self._count = count
        self._hangs = hangs

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self._count.now[self._name] += 1
        self._count.most = max(self._count.most, self._count.now.total())
        try:
            await (asyncio.Event().wait() if self._hangs else asyncio.sleep(0.002))
        finally:
            self._count.now[self._name] -= 1
        self._count.done[self._name] += 1


async def filled(each: int, tables: list[str] = TABLES, leaves: list[str] = LEAVES) -> MemoryStore:
    store = MemoryStore()
    await write(store, each, tables, leaves)
    return store


async def write(store: MemoryStore, each: int, tables: list[str], leaves: list[str]) -> None:
    async with store.transaction() as tx:
        for table in tables:
            messages = [Message(f"{name}.event", n) for n in range(each) for name in leaves]
            await Outbox(table).enqueue_many(tx, messages)


def unresolved(store: MemoryStore) -> int:
    return sum(row.published_at is None for table in TABLES for row in rows_of(store, table))


def rows_of(store: MemoryStore, table: str) -> list[MemoryRow]:
    return list(store.table(TableName.parse(table)).rows.values())


def router(leaves: dict[str, Leaf]) -> Router:
    return Router({f"{name}.*": leaf for name, leaf in leaves.items()})


@pytest.mark.parametrize("concurrency", [1, 2, 5, 16])
async def test_three_destinations_and_two_tables_stay_within_one_concurrency(concurrency: int) -> None:
    store, count = await filled(40), Count()
    leaves = {name: Leaf(name, count) for name in LEAVES}
    async with Relay(
        lambda: store, tables=TABLES, dispatcher=router(leaves), concurrency=concurrency, **PATIENT
    ):
        await until(lambda: unresolved(store) == 0)
    assert count.most == concurrency
    assert count.done == dict.fromkeys(LEAVES, 80)


@pytest.mark.parametrize("concurrency", [2, 4, 64])
async def test_a_destination_that_hangs_leaves_room_for_others(concurrency: int) -> None:
    """Also for those that are met only later, and for the other table."""
    store, count = await filled(200, leaves=["red"]), Count()
    leaves = {name: Leaf(name, count, hangs=name == "red") for name in LEAVES}
    async with Relay(
        lambda: store, tables=TABLES, dispatcher=router(leaves), concurrency=concurrency, **PATIENT
    ) as relay:
        most = {2: 1, 4: 3, 64: 48}[concurrency]
        await until(lambda: count.now["red"] == most)
        await write(store, 50, TABLES, ["green", "blue"])
        await until(lambda: count.done == {"green": 100, "blue": 100}, 15)
        assert count.now["red"] == most
        await relay.stop(grace=0.0)
    assert count.most <= concurrency


async def test_a_destination_that_hangs_with_large_messages_leaves_room_for_others() -> None:
    """All that the hand may hold in bytes is waiting for it."""
    store, count = MemoryStore(), Count()
    large = [Message("red.event", "x" * 10_000) for _ in range(400)]
    async with store.transaction() as tx:
        await Outbox(TABLES[0]).enqueue_many(tx, large)
    leaves = {name: Leaf(name, count, hangs=name == "red") for name in LEAVES}
    relay = Relay(lambda: store, table=TABLES[0], dispatcher=router(leaves), batch_bytes=200_000, **PATIENT)
    async with relay:
        await until(lambda: count.now["red"] > 0)
        await write(store, 5, TABLES[:1], ["green"])
        await until(lambda: count.done["green"] == 5, 15)
        await relay.stop(grace=0.0)


async def test_a_single_destination_of_a_single_table_has_all_of_it() -> None:
    store, count = await filled(100, TABLES[:1], ["red"]), Count()
    leaf = Leaf("red", count, hangs=True)
    async with Relay(lambda: store, table=TABLES[0], dispatcher=leaf, concurrency=7, **PATIENT) as relay:
        await until(lambda: count.now["red"] == 7)
        await relay.stop(grace=0.0)
    assert count.most == 7


async def test_places_come_back_from_whoever_had_many_when_another_comes() -> None:
    """The first one is slow and has nearly all; the second one gets its share as the first one's dispatches end."""
    store, count = await filled(400, TABLES[:1], ["red"]), Count()
    leaves = {name: Leaf(name, count) for name in LEAVES}
    async with Relay(lambda: store, table=TABLES[0], dispatcher=router(leaves), concurrency=8, **PATIENT):
        await until(lambda: count.done["red"] > 20)
        await write(store, 50, TABLES[:1], ["green"])
        await until(lambda: count.done["green"] == 50)
        await until(lambda: unresolved(store) == 0)
    assert count.most <= 8


async def test_a_dispatcher_left_behind_and_a_cancelled_one_give_their_places_back() -> None:
    release = asyncio.Event()

    class Deaf(Leaf):
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            while message.json() == 0 and not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            await super().dispatch(message)

    store, count = await filled(6, leaves=["red"]), Count()
    quick = QUICK_POSTGRES | {"dispatch_timeout": 0.1, "backoff_base": 30.0, "backoff_cap": 30.0}
    relay = Relay(
        lambda: store, tables=TABLES, dispatcher=router({"red": Deaf("red", count)}), concurrency=2, **quick
    )
    await relay.start()
    await until(lambda: unresolved(store) == 2)
    release.set()
    await relay.stop(grace=1.0)
    assert count.done["red"] >= 10


@pytest.mark.parametrize("routed", [True, False])
async def test_tables_with_one_destination_leave_each_other_room(routed: bool) -> None:
    """A backlog of one table does not keep the few messages of the other waiting for its end."""
    store, count = await filled(2000, TABLES[:1], ["red"]), Count()
    leaf = Leaf("red", count)
    dispatcher = router({"red": leaf}) if routed else leaf
    async with Relay(lambda: store, tables=TABLES, dispatcher=dispatcher, concurrency=4, **PATIENT):
        await until(lambda: count.done["red"] > 20)
        await write(store, 20, TABLES[1:], ["red"])
        await until(lambda: all(row.published_at for row in rows_of(store, TABLES[1])))
        assert unresolved(store) > 0
    assert count.most <= 4
