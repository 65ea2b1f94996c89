"""What the database does not bring to its end in time is not tried again before others had their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any, Generic, TypeVar

import pytest

from outbox_core.dispatchers.router import Router
from outbox_core.errors import BrokerUnavailable, StorageTimeout
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay, keys, reach
from outbox_core.relay.wakeups import MAX_SWEEP_SECONDS
from outbox_core.store import Claim, KeyId, KeyRequest, KeySpan, Leased, Predecessor, View
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from tests.simulation.loop import VirtualLoop
from tests.unit.relaying import TABLE, put, rows

GOOD, BAD, AWAY, FLAPPING = "good.b.v1", "bad.b.v1", "away.b.v1", "flapping.b.v1"
TIMEOUT, DISPATCH_TIMEOUT, LOCK_TTL = 2.0, 5.0, 30.0
PAUSE = 2.0
"""The longest between two tries of the database."""


class SlowStore(MemoryStore):
    """Says when a statement was broken off."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self.broken_off: list[float] = []

    async def spend(self, seconds: float) -> None:
        """The database is at it for so long; no longer than the timeout."""
        await asyncio.sleep(min(seconds, TIMEOUT))
        if seconds > TIMEOUT:
            self.broken_off.append(asyncio.get_running_loop().time())
            raise StorageTimeout("not answered in time")


S = TypeVar("S", bound=SlowStore)


class Scene(Generic[S]):
    """A relay on a slow store, in virtual time, with a healthy destination among others."""

    def __init__(self, loop: VirtualLoop, store: S) -> None:
        self.loop = loop
        self.store = store
        self._arrived = asyncio.Event()

    async def good(self, _: DispatchedMessage) -> None:
        self._arrived.set()

    async def arrival(self, seconds: float) -> None:
        """A message reaches the healthy destination in so many seconds, or has."""
        async with asyncio.timeout(seconds):
            await self._arrived.wait()

    def relay(self, others: Mapping[str, Any] | None = None, backoff: float = 0.5) -> Relay:
        return Relay(
            lambda: self.store,
            table=TABLE,
            dispatcher=Router({"good.**": self.good, **(others or {})}),
            database_timeout=TIMEOUT,
            dispatch_timeout=DISPATCH_TIMEOUT,
            lock_ttl=LOCK_TTL,
            backoff_base=backoff,
            backoff_cap=max(backoff, 3.0),
            backoff_jitter=0.0,
            poll_interval=0.05,
        )

    async def waits(self, seconds: float, topics: Sequence[str] = ()) -> list[float]:
        """How long one message after another takes to arrive, each written a second after the last has arrived, and
        after others of these topics."""
        found = list[float]()
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await put(self.store, *(Message(topic, 1) for topic in topics))
            self._arrived.clear()
            began = self.loop.time()
            await put(self.store, Message(GOOD, 1))
            await self.arrival(60.0)
            found.append(self.loop.time() - began)
            await asyncio.sleep(1.0)
        return found


def play(store: type[S], scenario: Callable[[Scene[S]], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    def clock() -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=loop.time())

    async def main() -> None:
        await scenario(Scene(loop, store(clock)))

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


class Passing(SlowStore):
    """A claim takes the longer, the more messages for destinations that are away it comes past."""

    row_seconds = 0.006

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        passed = sum(
            claim.since <= (row.available_at, row.sequence) <= claim.until
            for row in self.table(table).rows.values()
            if row.published_at is None and row.record.topic in claim.blocked_topics
        )
        await self.spend(passed * self.row_seconds)
        return await super().claim(table, claim)


class Away:
    async def dispatch(self, _: DispatchedMessage, /) -> None:
        raise BrokerUnavailable("gone")

    async def probe(self) -> None:
        raise BrokerUnavailable("still gone")


def test_a_destination_that_comes_and_goes_behind_one_that_is_away_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time it is back, everything is looked at again: not by the claims that others wait for."""
    monkeypatch.setattr(reach, "_FIRST_SPAN", 200)
    monkeypatch.setattr(reach, "_LEAST_SPAN", 20)
    tries = 0

    async def flapping(_: DispatchedMessage) -> None:
        nonlocal tries
        tries += 1
        if tries % 2 == 0:
            raise BrokerUnavailable("now and then")

    async def scenario(scene: Scene[SlowStore]) -> None:
        await put(scene.store, *(Message(AWAY, number) for number in range(2_000)))
        for row in rows(scene.store):
            row.available_at -= timedelta(hours=1)
        async with scene.relay({"away.**": Away(), "flapping.**": flapping}):
            await asyncio.sleep(20.0)  # everything has been read once
            assert scene.store.broken_off
            waits = await scene.waits(90.0, (FLAPPING, FLAPPING))
        assert max(waits) < 2 * TIMEOUT + 1.0
        assert median(waits) < TIMEOUT, "a claim is broken off each time"
        assert tries > 20

    play(Passing, scenario)


class SlowUndo(SlowStore):
    """The first claim is broken off, and so is whatever would undo it."""

    claims = 0

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        self.claims += 1
        if self.claims == 1:
            raise StorageTimeout("not answered in time")
        return await super().claim(table, claim)

    async def undo_claim(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> int:
        await self.spend(60.0)
        return await super().undo_claim(table, claim, keys)


def test_an_undo_that_is_broken_off_keeps_nobody_waiting_and_is_given_up_in_the_end() -> None:
    async def scenario(scene: Scene[SlowStore]) -> None:
        began = scene.loop.time()
        async with scene.relay():
            waits = await scene.waits(120.0)
        assert max(waits) < TIMEOUT + PAUSE + 1.0
        *undone, last = scene.store.broken_off
        assert len(undone) > 1
        assert all(later - earlier > MAX_SWEEP_SECONDS for earlier, later in pairwise((*undone, last)))
        # When the leases of that claim have ended there is nothing to undo any more.
        assert last < began + LOCK_TTL + MAX_SWEEP_SECONDS + 3 * (TIMEOUT + PAUSE)

    play(SlowUndo, scenario)


class SlowReview(SlowStore):
    """From some time on each key that is looked at takes its time, and fifty of them all there is."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self.is_slow = False
        self.asked: list[int] = []

    async def predecessors(
        self, table: TableName, spans: Sequence[KeySpan], view: View
    ) -> dict[KeyId, Predecessor]:
        if self.is_slow:
            self.asked.append(len(spans))
            await self.spend(len(spans) * TIMEOUT / 50)
        return await super().predecessors(table, spans, view)


def test_a_review_that_is_broken_off_keeps_nobody_waiting_and_asks_for_fewer_keys_next() -> None:
    async def bad(_: DispatchedMessage) -> None:
        raise RuntimeError("not yet")

    async def scenario(scene: Scene[SlowReview]) -> None:
        store = scene.store
        await put(store, *(Message(BAD, 0, key=f"k{number}") for number in range(60)))
        async with scene.relay({"bad.**": bad}, backoff=600.0):
            await asyncio.sleep(0.5)
            assert all(row.last_error for row in rows(store))
            store.is_slow = True
            waits = await scene.waits(MAX_SWEEP_SECONDS - PAUSE)
            assert (store.asked, len(store.broken_off)) == ([60], 1)
            waits += await scene.waits(100.0)
        assert store.asked[1] == 50
        assert max(store.asked[1:]) == 60, "it never asked for more again"
        assert max(waits) < TIMEOUT + PAUSE + 1.0

    play(SlowReview, scenario)


class Timed(SlowStore):
    async def claim(self, table: TableName, claim: Claim) -> Leased:
        await self.spend(0.005)
        return await super().claim(table, claim)


@pytest.mark.parametrize("size", [100, 120_000])
def test_a_sweep_gets_past_a_row_that_fills_a_slice_alone_and_goes_back(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Its key is held, and there are more of those than a claim is told of."""
    monkeypatch.setattr(keys, "MAX_HELD_IN_CLAIM", 1)

    async def scenario(scene: Scene[Timed]) -> None:
        store, arrived = scene.store, set[object]()

        async def bad(_: DispatchedMessage) -> None:
            raise RuntimeError("not yet")

        async def good(message: DispatchedMessage) -> None:
            arrived.add(message.json())

        await put(store, *(Message("bad.b.v1", 0, key=f"k{number}") for number in range(3)))
        relay = Relay(
            lambda: store, table=TABLE, dispatcher=Router({"good.**": good, "bad.**": bad}),
            backoff_base=3600.0, backoff_cap=3600.0, backoff_jitter=0.0, batch_bytes=50_000, poll_interval=0.05,
        )  # fmt: skip
        async with relay:
            await asyncio.sleep(2.0)
            await put(store, *(Message(GOOD, "x" * size, key=f"k{number}") for number in range(3)))
            await put(store, Message(GOOD, "left by a crash"))
            for row in rows(store, GOOD):
                row.available_at -= timedelta(minutes=1 if row.record.key is None else 2)
            await asyncio.sleep(60.0)
        assert arrived == {"left by a crash"}

    play(Timed, scenario)
