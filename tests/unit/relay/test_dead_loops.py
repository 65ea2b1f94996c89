"""A part of the relay dies: what it had in flight is on record or released before the error comes out."""

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
from outbox_core.stores.memory.election import MemoryElection
from outbox_core.table import TableName
from tests.kit.memory import OTHER, TABLE, KeptStore

SECONDS = 15.0


class Store(KeptStore):
    """Fails by a bug of its own once the test says so; every write takes a while."""

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
    """It is not even admitted by then: the next claim is sent first."""
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


class Dying(KeptStore):
    """Has a bug in the named part, once the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.buggy: set[str] = set()

    def _meet(self, part: str) -> None:
        if part in self.buggy:
            raise ZeroDivisionError("a bug")

    def election(self, table: TableName) -> MemoryElection:
        election = super().election(table)
        heartbeat = election.heartbeat

        async def buggy(term: int) -> bool:
            self._meet("leader")
            return await heartbeat(term)

        election.heartbeat = buggy  # type: ignore[method-assign]
        return election

    async def keep_listening(self) -> None:
        self._meet("listener")

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        if table == TABLE:
            self._meet("completer")
        return await super().publish(table, leases, delete=delete)


@pytest.mark.asyncio
@pytest.mark.parametrize("part", ["leader", "listener", "completer"])
async def test_what_is_in_flight_is_on_record_or_released_whichever_part_dies(part: str) -> None:
    """In every table: the one that died has at most what it was just writing."""
    store, begun, go_on = Dying(), asyncio.Event(), asyncio.Event()
    inside = 0

    async def deliver(message: DispatchedMessage) -> None:
        nonlocal inside
        inside += 1
        if inside == 8:
            begun.set()
        if part == "completer" and message.meta.table == str(TABLE) and message.json() == 0:
            await begun.wait()
            return
        await go_on.wait()

    for table in (TABLE, OTHER):
        async with store.transaction() as tx:
            await Outbox(table).enqueue_many(tx, [Message("a.b.v1", number) for number in range(20)])
    relay = Relay(
        store.connect,
        tables=[TABLE, OTHER],
        dispatcher=deliver,
        concurrency=16,
        takeover=5.0,
        single_active=part != "listener",
    )
    await relay.start()
    async with asyncio.timeout(SECONDS):
        store.buggy.add(part)
        await begun.wait()
        with pytest.raises(RelayFailed) as raised:
            await relay.wait()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    leased = {
        table: [row.sequence for row in store.table(table).rows.values() if row.lock_token is not None]
        for table in (TABLE, OTHER)
    }
    assert leased == {TABLE: [1] if part == "completer" else [], OTHER: []}
