"""Rows that were claimed come into the relay or go back: none waits for its lease to end."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox_core.errors import StorageUnavailable
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.store import Claim, Leased
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from tests.kit.brokers import never_answer
from tests.kit.deliveries import Delivery
from tests.kit.deliveries import claim as terms_of_a_claim
from tests.kit.gates import ignore
from tests.kit.memory import KeptStore

TABLE = TableName("public", "orders_outbox")
MESSAGES, KEYS = 120, 7
SECONDS = 15.0
"""Far less than a lease, far more than a relay needs."""


class Store(KeptStore):
    """One call fails once, after the database has done what it was asked for."""

    def __init__(self, fails: str | None = None) -> None:
        super().__init__()
        self._fails = fails
        self.failed = 0

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        leased = await super().claim(table, claim)
        self._fail("claim", leased.count > 0)
        return leased

    def _fail(self, call: str, matters: bool) -> None:
        if self._fails == call and matters and not self.failed:
            self.failed += 1
            raise StorageUnavailable("the answer was lost")


async def write(store: MemoryStore, messages: int = MESSAGES, keys: int = KEYS) -> None:
    async with store.transaction() as tx:
        for number in range(messages):
            await Outbox(TABLE).enqueue(tx, Message("a.b.v1", number, key=f"k{number % keys}"))


@pytest.mark.asyncio
@pytest.mark.parametrize("fails", [None, "claim"])
async def test_everything_is_delivered_once_and_in_order(fails: str | None) -> None:
    store, seen, done = Store(fails), defaultdict[str | None, list[Any]](list), asyncio.Event()

    async def deliver(message: DispatchedMessage) -> None:
        seen[message.meta.key].append((message.json(), message.meta.attempts))
        if sum(map(len, seen.values())) == MESSAGES:
            done.set()

    await write(store)
    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, batch_size=10, backoff_base=0.01)
    async with asyncio.timeout(SECONDS), relay:
        await done.wait()
    assert store.failed == (fails is not None)
    for key, delivered in seen.items():
        numbers = range(int(str(key)[1:]), MESSAGES, KEYS)
        assert delivered == [(number, 1) for number in numbers]


@pytest.mark.asyncio
async def test_a_stop_undoes_a_claim_whose_answer_was_lost() -> None:
    store, lost = Store("claim"), asyncio.Event()

    def hear(event: object) -> None:
        if type(event).__name__ == "Reconnecting":
            lost.set()

    await write(store)
    relay = Relay(store.connect, table=TABLE, dispatcher=never_answer, observers=[hear], backoff_base=5.0)
    async with asyncio.timeout(SECONDS):
        await relay.start()
        await lost.wait()
        await relay.stop(1.0)
    assert all(row.lock_token is None and row.attempts == 0 for row in store.table(TABLE).rows.values())


@pytest.mark.asyncio
async def test_a_row_that_another_relay_has_by_now_is_in_flight_no_more() -> None:
    """The relay stood still between its claim and what it does with the rows, for longer than its lease."""
    ahead = timedelta()
    store = MemoryStore(lambda: datetime.now(UTC) + ahead)
    await write(store, messages=2, keys=1)
    taken, met = list[Delivery](), asyncio.Event()

    class Frozen(MemoryStore):
        async def claim(self, table: TableName, claim: Claim) -> Leased:
            nonlocal ahead
            leased = await super().claim(table, claim)
            if leased.count and not taken:
                ahead += timedelta(seconds=claim.lock_ttl + 1)
                other = terms_of_a_claim(limit=1)
                taken.extend((await store.claim(table, other)).rows())
                met.set()
            return leased

    relay = Relay(lambda: Frozen(database=store.database), table=TABLE, dispatcher=ignore)
    async with asyncio.timeout(SECONDS):
        drained = asyncio.ensure_future(relay.drain(timeout=10 * SECONDS))
        await met.wait()
        await store.release(TABLE, [(row.id, row.token) for row in taken], restamp=False)
        await drained
        await Relay(store.connect, table=TABLE, dispatcher=ignore).drain(timeout=SECONDS)
    assert all(row.published_at is not None for row in store.table(TABLE).rows.values())


@pytest.mark.asyncio
@pytest.mark.parametrize("keys", [1, MESSAGES])
async def test_what_may_have_crashed_its_relay_is_dispatched_when_nothing_else_is(keys: int) -> None:
    """Not only of its own claim: those before it are still being dispatched when it is found."""
    store, flying, done = Store(), set[int](), asyncio.Event()
    await write(store, 12, keys)
    suspect = sorted(store.table(TABLE).rows.values(), key=lambda row: row.sequence)[7]
    suspect.attempts, suspect.last_error = 2, "TX.LEASE the lease before ended without an outcome"
    beside, delivered = list[set[int]](), list[int]()

    async def deliver(message: DispatchedMessage) -> None:
        sequence = message.meta.sequence
        if suspect.sequence in (sequence, *flying):
            beside.append(flying | {sequence})
        flying.add(sequence)
        await asyncio.sleep(0.05)
        flying.discard(sequence)
        delivered.append(sequence)
        if len(delivered) == 12:
            done.set()

    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, batch_size=3, backoff_base=0.01)
    async with asyncio.timeout(SECONDS), relay:
        await done.wait()
    assert beside == [{suspect.sequence}]
