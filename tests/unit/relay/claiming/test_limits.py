"""How much a relay asks for in a claim: more while a backlog lasts, no more than fits while messages are large."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.store import Claim, Leased
from outbox_core.table import TableName
from tests.kit.memory import KeptStore

TABLE = TableName("public", "orders_outbox")
SECONDS = 15.0
LARGE = "x" * 10_000


class Store(KeptStore):
    """Remembers how many rows each claim asked for and how many it got."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[tuple[int, int]] = []
        self._claimed = asyncio.Event()

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        leased = await super().claim(table, claim)
        if leased.count:
            self.claims.append((claim.limit, leased.count))
            self._claimed.set()
        return leased

    async def until_claimed(self, wanted: int) -> None:
        async with asyncio.timeout(SECONDS):
            while sum(rows for _, rows in self.claims) < wanted:
                self._claimed.clear()
                await self._claimed.wait()


async def claims_of(payloads: Sequence[str]) -> list[tuple[int, int]]:
    store, left, done = Store(), len(payloads), asyncio.Event()

    async def deliver(_: DispatchedMessage) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with store.transaction() as tx:
        await Outbox(TABLE).enqueue_many(tx, [Message("a.b.v1", payload) for payload in payloads])
    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, batch_size=20, batch_bytes=50_000)
    async with asyncio.timeout(SECONDS), relay:
        await done.wait()
    return store.claims


@pytest.mark.asyncio
async def test_a_backlog_of_small_messages_is_claimed_in_larger_and_larger_numbers() -> None:
    asked = [limit for limit, _ in await claims_of(["small"] * 600)]
    assert asked[:5] == [20, 40, 80, 160, 200]


@pytest.mark.asyncio
async def test_of_large_messages_no_more_are_weighed_than_might_fit() -> None:
    first, *others = await claims_of([LARGE] * 40)
    assert first[0] == 20
    assert first[1] < 10
    assert {limit for limit, _ in others[:-2]} == {2 * first[1]}


@pytest.mark.asyncio
async def test_after_large_messages_small_ones_are_claimed_in_large_numbers_again() -> None:
    claims = await claims_of([LARGE] * 10 + ["small"] * 600)
    assert max(limit for limit, _ in claims) == 200


@pytest.mark.asyncio
async def test_a_few_large_messages_do_not_keep_others_waiting_for_slow_ones() -> None:
    """A small limit of the next claim is not one of what may be in flight."""
    store, arrived, slow = Store(), asyncio.Event(), asyncio.Event()

    async def deliver(message: DispatchedMessage) -> None:
        if message.json() == "slow":
            await slow.wait()
        elif message.json() == "last":
            arrived.set()

    async def write(*payloads: str) -> None:
        async with store.transaction() as tx:
            await Outbox(TABLE).enqueue_many(tx, [Message("a.b.v1", payload) for payload in payloads])

    await write(*["slow"] * 15)
    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, batch_size=20, batch_bytes=50_000)
    async with relay:
        await store.until_claimed(15)
        await write(LARGE, LARGE)
        await store.until_claimed(17)
        await write("last")
        async with asyncio.timeout(SECONDS):
            await arrived.wait()
        slow.set()
