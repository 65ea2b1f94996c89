"""A part of the relay dies: what it had in hand is on record or given back before the error comes out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outbox_core.errors import RelayFailed
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.store import Claim, Lease, Leased, Tick
from outbox_core.table import TableName
from tests.unit.kept_store import KeptStore

TABLE = TableName("public", "orders_outbox")
SECONDS = 15.0


class Store(KeptStore):
    """Fails by a bug of its own once it is told to; every write takes a while."""

    broken = False

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        await asyncio.sleep(0.02)
        return await super().publish(table, leases, delete=delete)

    async def release(self, table: TableName, leases: Sequence[Lease], *, restamp: bool) -> set[Lease]:
        await asyncio.sleep(0.02)
        return await super().release(table, leases, restamp=restamp)

    async def tick(self, table: TableName) -> Tick:
        if self.broken:
            raise ZeroDivisionError("a bug")
        return await super().tick(table)


@pytest.mark.asyncio
async def test_nothing_stays_leased_when_a_part_of_the_relay_dies() -> None:
    store, begun = Store(), asyncio.Event()

    async def deliver(_: DispatchedMessage) -> None:
        begun.set()
        await asyncio.sleep(1.0)

    async with store.transaction() as tx:
        await Outbox(TABLE).enqueue_many(tx, [Message("a.b.v1", number) for number in range(200)])
    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, poll_interval=0.05)
    await relay.start()
    async with asyncio.timeout(SECONDS):
        await begun.wait()
        store.broken = True
        with pytest.raises((RelayFailed, ZeroDivisionError)):
            await relay.wait()
    assert [row.sequence for row in store.table(TABLE).rows.values() if row.lock_token is not None] == []


class FailingNext(KeptStore):
    """Has a bug in every claim but the first that brings something."""

    claimed = 0

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        if self.claimed:
            raise ZeroDivisionError("a bug")
        leased = await super().claim(table, claim)
        self.claimed = leased.count
        return leased


@pytest.mark.asyncio
async def test_what_was_claimed_when_the_next_claim_dies_does_not_stay_leased() -> None:
    """It is not even looked at by then: the next claim is sent first."""
    store = FailingNext()

    async def deliver(_: DispatchedMessage) -> None:
        await asyncio.sleep(1.0)

    async with store.transaction() as tx:
        await Outbox(TABLE).enqueue_many(tx, [Message("a.b.v1", number) for number in range(20)])
    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, batch_size=10)
    async with asyncio.timeout(SECONDS):
        with pytest.raises(ZeroDivisionError):
            await relay.run()
    assert store.claimed == 10
    assert [row.sequence for row in store.table(TABLE).rows.values() if row.lock_token is not None] == []
