"""A claim is sent before the rows of the one before it are admitted: order within a key holds all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Claimed
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.relay.ordering.admission import Admission
from outbox_core.store import Claim, Leased
from outbox_core.table import TableName
from tests.kit.memory import KeptStore
from tests.kit.tuning import tune

TABLE = TableName("public", "orders_outbox")
SECONDS = 15.0
SECOND_DUE = 0.3


def keyed(number: int, *, delay: float | None = None) -> Message:
    return Message("a.b.v1", number, key="k", delay=None if delay is None else timedelta(seconds=delay))


def keyless(count: int) -> list[Message]:
    """So many that a claim is full, and the next one is sent at once."""
    return [Message("a.b.v1", 0) for _ in range(count)]


class Store(KeptStore):
    """More is written while 3 is claimed, and again while 4 is, whose claim is answered late."""

    def __init__(self) -> None:
        super().__init__()
        self.first_may_end = asyncio.Event()

    async def write(self, *messages: Message) -> None:
        async with self.transaction() as tx:
            await Outbox(TABLE).enqueue_many(tx, messages)

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        leased = await super().claim(table, claim)
        numbers = _numbers(leased)
        if 3 in numbers and not self.first_may_end.is_set():
            await self.write(keyed(4), *keyless(30))
        elif 4 in numbers and not self.first_may_end.is_set():
            self.first_may_end.set()
            await asyncio.sleep(SECOND_DUE + 0.05)  # 2 becomes due while this answer is on its way
            await self.write(keyed(5))
        return leased


def _numbers(leased: Leased) -> Sequence[object]:
    return [row.message.json() for row in leased.rows()]


@pytest.mark.asyncio
async def test_a_key_is_not_claimed_past_rows_that_are_not_admitted_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune(monkeypatch, clock_check_seconds=60.0)  # one in between would give the first claim its turn
    store, begun, all_seen, seen = Store(), asyncio.Event(), asyncio.Event(), list[object]()

    async def deliver(message: DispatchedMessage) -> None:
        number = message.json()
        if number == 0:
            return
        if number == 1:
            begun.set()
            await store.first_may_end.wait()
        seen.append(number)
        if len(seen) == 5:
            all_seen.set()

    await store.write(keyed(1))
    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, batch_size=10)
    async with asyncio.timeout(SECONDS), relay:
        await begun.wait()
        await store.write(keyed(2, delay=SECOND_DUE), keyed(3), *keyless(9))
        await all_seen.wait()
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.asyncio
async def test_rows_that_are_not_admitted_yet_are_released_at_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop may come between a claim and the next round of the event loop; here that takes for ever."""
    store, claimed, dispatched = KeptStore(), asyncio.Event(), list[DispatchedMessage]()

    async def never(_: Admission) -> None:
        await asyncio.Event().wait()

    async def deliver(message: DispatchedMessage) -> None:
        dispatched.append(message)

    def hear(event: object) -> None:
        if isinstance(event, Claimed):
            claimed.set()

    monkeypatch.setattr(Admission, "run", never)
    async with store.transaction() as tx:
        await Outbox(TABLE).enqueue_many(tx, keyless(5))
    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, observers=[hear])
    async with asyncio.timeout(SECONDS):
        await relay.start()
        await claimed.wait()
        await relay.stop(1.0)
    rows = store.table(TABLE).rows.values()
    assert [(row.lock_token, row.attempts) for row in rows] == [(None, 0)] * 5
    assert dispatched == []
