"""What the database does not bring to its end in time is not tried again before others had their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

import pytest

from outbox_core.dispatchers.router import Router
from outbox_core.errors import BrokerUnavailable, StorageTimeout
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.store import Claim, KeyId, KeyRequest, KeySpan, Leased, Predecessor, View
from outbox_core.table import TableName
from tests.kit.brokers import UnavailableBroker
from tests.kit.memory import TABLE, put, rows
from tests.kit.tuning import constant, tune
from tests.simulation.scene import GOOD, LOCK_TTL, TIMEOUT, UNAVAILABLE, Passing, Scene, SlowStore, play

BAD, FLAPPING = "bad.b.v1", "flapping.b.v1"
PAUSE = 2.0
"""The longest between two tries of the database."""
MAX_RESCAN_SECONDS: float = constant("max_rescan_seconds")


def test_a_destination_that_comes_and_goes_behind_an_unavailable_one_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time it is back, everything is read again: not by the claims that others wait for."""
    tune(monkeypatch, first_span=200, least_span=20)
    tries = 0

    async def flapping(_: DispatchedMessage) -> None:
        nonlocal tries
        tries += 1
        if tries % 2 == 0:
            raise BrokerUnavailable("now and then")

    async def scenario(scene: Scene[SlowStore]) -> None:
        await put(scene.store, *(Message(UNAVAILABLE, number) for number in range(2_000)))
        for row in rows(scene.store):
            row.available_at -= timedelta(hours=1)
        async with scene.relay({"away.**": UnavailableBroker(), "flapping.**": flapping}):
            await asyncio.sleep(20.0)  # everything has been read once
            assert scene.store.broken_off
            waits = await scene.waits(90.0, (FLAPPING, FLAPPING))
        assert max(waits) < 2 * TIMEOUT + 1.0
        assert median(waits) < TIMEOUT, "a claim is broken off each time"
        assert tries > 20

    play(Passing, scenario)


class SlowUndo(SlowStore):
    """The first claim is broken off, and so is every undo of it."""

    claims = 0

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        self.claims += 1
        if self.claims == 1:
            raise StorageTimeout("not answered in time")
        return await super().claim(table, claim)

    async def undo_claim(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> int:
        await self.spend(60.0)
        return await super().undo_claim(table, claim, keys)


def test_an_undo_that_times_out_keeps_no_other_waiting_and_ends_with_the_leases() -> None:
    async def scenario(scene: Scene[SlowStore]) -> None:
        began = scene.loop.time()
        async with scene.relay():
            waits = await scene.waits(120.0)
        assert max(waits) < TIMEOUT + PAUSE + 1.0
        *undone, last = scene.store.broken_off
        assert len(undone) > 1
        assert all(later - earlier > MAX_RESCAN_SECONDS for earlier, later in pairwise((*undone, last)))
        # When the leases of that claim have ended there is nothing to undo any more.
        assert last < began + LOCK_TTL + MAX_RESCAN_SECONDS + 3 * (TIMEOUT + PAUSE)

    play(SlowUndo, scenario)


class SlowReview(SlowStore):
    """From some time on each key that is checked takes its time, and fifty of them all there is."""

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


def test_a_recheck_that_times_out_keeps_no_other_waiting_and_asks_for_fewer_keys_next() -> None:
    async def bad(_: DispatchedMessage) -> None:
        raise RuntimeError("not yet")

    async def scenario(scene: Scene[SlowReview]) -> None:
        store = scene.store
        await put(store, *(Message(BAD, 0, key=f"k{number}") for number in range(60)))
        async with scene.relay({"bad.**": bad}, backoff=600.0):
            await asyncio.sleep(0.5)
            assert all(row.last_error for row in rows(store))
            store.is_slow = True
            waits = await scene.waits(MAX_RESCAN_SECONDS - PAUSE)
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
def test_a_rescan_gets_past_a_row_that_fills_a_slice_alone_and_is_released(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Its key is held, and there are more of those than fit into a claim."""
    tune(monkeypatch, max_held_keys_in_claim=1)

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
