"""A stop is heard at once, also while the database does not answer: nothing more is begun, and the deadline holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import anyio
import pytest

from outbox_core.errors import StorageUnavailable
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import LeaderGained, LeaderLost
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.store import Claim, KeyRequest, Lease, Leased, Tick
from outbox_core.stores.memory.election import MemoryElection
from outbox_core.stores.memory.store import MemoryStore
from outbox_core.table import TableName
from tests.kit.gates import Gate, ignore
from tests.kit.memory import OTHER, TABLE, KeptStore, put, rows
from tests.kit.observing import Heard
from tests.kit.waiting import until

MESSAGES = 20


class Silent(MemoryStore):
    """Answers its first claim, and then none until it is aborted. As with PostgreSQL, calls are carried through."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(database=store.database)
        self.asked = asyncio.Event()
        self._claimed = False
        self._aborted = asyncio.Event()

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        if self._claimed:
            self.asked.set()
            with anyio.CancelScope(shield=True):
                await self._aborted.wait()
        leased = await super().claim(table, claim)
        self._claimed = self._claimed or leased.count > 0
        return leased

    def abort(self) -> None:
        self._aborted.set()
        super().abort()


async def stopped(grace: float, *, stubborn: bool) -> tuple[MemoryStore, float, int]:
    """Stop a relay that waits for an answer; its store, how long it took to be gone, and what was begun meanwhile."""
    store, begun = MemoryStore(), 0

    async def deliver(_: DispatchedMessage) -> None:
        nonlocal begun
        begun += 1
        until = time.monotonic() + (5.0 if stubborn else 0.05)
        while time.monotonic() < until:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    async with store.transaction() as tx:
        await Outbox(TABLE).enqueue_many(tx, [Message("a.b.v1", n) for n in range(MESSAGES)])
    silent = Silent(store)
    relay = Relay(lambda: silent, table=TABLE, dispatcher=deliver, batch_size=MESSAGES, concurrency=1)
    async with asyncio.timeout(30):
        await relay.start()
        await silent.asked.wait()
        asked, before = time.monotonic(), begun
        await relay.stop(grace)
        await relay.wait()
    return store, time.monotonic() - asked, begun - before


@pytest.mark.asyncio
async def test_nothing_is_begun_after_a_stop_while_a_claim_is_not_answered() -> None:
    store, _, begun = await stopped(1.0, stubborn=False)
    assert begun <= 1  # the one on its way to the dispatcher
    rows = store.table(TABLE).rows.values()
    assert [row for row in rows if row.lock_token is not None] == []
    assert {row.attempts for row in rows if row.published_at is None} == {0}
    assert any(row.published_at is None for row in rows)


class Paused(MemoryStore):
    """Keeps the second claim waiting for its answer, and counts claims."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(database=store.database)
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.claims = 0

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        self.claims += 1
        leased = await super().claim(table, claim)
        if self.claims == 2:
            self.asked.set()
            await self.go_on.wait()
        return leased


@pytest.mark.asyncio
async def test_no_claim_is_begun_once_a_stop_is_asked_for() -> None:
    """Not even by a loop that is cancelled only a moment later: it would take what was just released."""
    store = MemoryStore()
    async with store.transaction() as tx:
        await Outbox(TABLE).enqueue_many(tx, [Message("a.b.v1", n) for n in range(MESSAGES)])
    paused = Paused(store)

    async def deliver(_: DispatchedMessage) -> None:
        await asyncio.sleep(0.05)

    relay = Relay(lambda: paused, table=TABLE, dispatcher=deliver, batch_size=5, concurrency=1)
    async with asyncio.timeout(30):
        await relay.start()
        await paused.asked.wait()
        stopping = asyncio.create_task(relay.stop(1.0))
        paused.go_on.set()  # so that the claim goes on just after the stop was asked for
        await stopping
        await relay.wait()
    assert paused.claims == 2
    assert [row for row in store.table(TABLE).rows.values() if row.lock_token is not None] == []


@pytest.mark.asyncio
async def test_a_silent_database_and_a_stubborn_dispatcher_do_not_add_up() -> None:
    _, took, _ = await stopped(0.0, stubborn=True)
    assert took < 1.0


class Asked(MemoryStore):
    """Keeps a tick waiting for its answer, once the test says so, and counts claims."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(database=store.database)
        self.waits = False
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.claims = 0

    async def tick(self, table: TableName) -> Tick:
        tick = await super().tick(table)
        if self.waits:
            self.asked.set()
            await self.go_on.wait()
        return tick

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        self.claims += 1
        return await super().claim(table, claim)


@pytest.mark.asyncio
async def test_no_claim_is_sent_after_a_tick_that_a_stop_overtook() -> None:
    store = MemoryStore()
    asked = Asked(store)

    async def deliver(_: DispatchedMessage) -> None:
        return None

    relay = Relay(lambda: asked, table=TABLE, dispatcher=deliver, poll_interval=0.05)
    async with asyncio.timeout(30):
        await relay.start()
        await until(lambda: asked.claims > 0)
        asked.waits = True
        await asked.asked.wait()
        before = asked.claims
        stopping = asyncio.create_task(relay.stop(1.0))
        asked.go_on.set()
        await stopping
        await relay.wait()
    assert asked.claims == before


class Unavailable(MemoryStore):
    """Records nothing."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(database=store.database)
        self.asked = asyncio.Event()

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        self.asked.set()
        raise StorageUnavailable("no answer")


@pytest.mark.asyncio
async def test_a_second_stop_shortens_the_first_while_nothing_can_be_recorded() -> None:
    store = MemoryStore()
    async with store.transaction() as tx:
        await Outbox(TABLE).enqueue(tx, Message("a.b.v1", 1))
    unavailable = Unavailable(store)

    async def deliver(_: DispatchedMessage) -> None:
        return None

    relay = Relay(lambda: unavailable, table=TABLE, dispatcher=deliver)
    async with asyncio.timeout(30):
        await relay.start()
        await unavailable.asked.wait()
        unavailable.asked.clear()
        patient = asyncio.create_task(relay.stop(20.0))
        await unavailable.asked.wait()  # once more: by now it does nothing but record
        asked = time.monotonic()
        await relay.stop(0.0)
        await relay.wait()
        await patient
    assert time.monotonic() - asked < 2.0


class Campaigning(MemoryStore):
    """Counts heartbeats."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(takeover=1.0, database=store.database)
        self.heartbeats = 0

    def election(self, table: TableName) -> MemoryElection:
        election = super().election(table)
        heartbeat = election.heartbeat

        async def counted(term: int) -> bool:
            self.heartbeats += 1
            return await heartbeat(term)

        election.heartbeat = counted  # type: ignore[method-assign]
        return election


@pytest.mark.asyncio
async def test_a_relay_that_stops_takes_no_lead_and_keeps_what_it_has() -> None:
    """It would claim nothing, and keep others from it until it is gone."""
    store, heard, gate = MemoryStore(takeover=1.0), Heard(), Gate()
    campaigning = Campaigning(store)
    settings: dict[str, float] = {"takeover": 1.0, "database_timeout": 1.0, "dispatch_timeout": 20.0}
    tables = [TABLE, OTHER]
    relay = Relay(lambda: campaigning, tables=tables, dispatcher=gate, observers=[heard], **settings)
    rival = Relay(store.connect, table=OTHER, dispatcher=ignore, **settings)
    heir = Relay(store.connect, table=OTHER, dispatcher=ignore, **settings)
    async with asyncio.timeout(30):
        await rival.start()
        await put(store, Message("a.b.v1", 1), table=OTHER)
        await until(lambda: all(row.published_at is not None for row in rows(store, table=OTHER)))
        await relay.start()
        await put(store, Message("a.b.v1", 1))
        await until(lambda: gate.inside == 1)
        stopping = asyncio.create_task(relay.stop(15.0))
        await until(lambda: relay.state == "stopping")
        await rival.stop(0.0)
        before = campaigning.heartbeats
        await until(lambda: campaigning.heartbeats >= before + 3)
        assert [event.table for event in heard.of(LeaderGained)] == [TABLE]
        assert heard.of(LeaderLost) == []
        async with heir:
            await put(store, Message("a.b.v1", 2), table=OTHER)
            await until(lambda: all(row.published_at is not None for row in rows(store, table=OTHER)), 5.0)
            assert not stopping.done()
            gate.opened.set()
            await stopping
    assert [row.published_at is not None for row in rows(store)] == [True]


class LosesAnswer(KeptStore):
    """Loses the answer of every claim that takes rows, once it ``loses``, and undoes none before the stop."""

    loses = False

    def __init__(self) -> None:
        super().__init__()
        self.lost = asyncio.Event()
        self.stopping = False

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        leased = await super().claim(table, claim)
        if self.loses and leased.count:
            self.lost.set()
            raise StorageUnavailable("the answer was lost")
        return leased

    async def undo_claim(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> int:
        if not self.stopping:
            raise StorageUnavailable("not now")
        await asyncio.sleep(0.05)
        return await super().undo_claim(table, claim, keys)


@pytest.mark.asyncio
async def test_lost_claims_are_undone_beside_a_dispatch_that_lasts_until_the_deadline() -> None:
    store, gate = LosesAnswer(), Gate()
    await put(store, Message("a.b.v1", 1))
    relay = Relay(store.connect, table=TABLE, dispatcher=gate, poll_interval=0.05)
    await relay.start()
    await until(lambda: gate.inside == 1)
    store.loses = True
    await put(store, Message("a.b.v1", 2))
    await store.lost.wait()
    store.stopping = True
    await relay.stop(grace=0.5)
    assert [row.lock_token for row in rows(store)] == [None, None]
