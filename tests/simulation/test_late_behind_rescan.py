"""What appears behind a rescan that is under way is not left to the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.store import Claim, Leased, Tick
from outbox_core.table import TableName
from tests.kit.brokers import UnavailableBroker
from tests.kit.memory import TABLE, put, rows
from tests.kit.tuning import tune
from tests.simulation.scene import GOOD, TIMEOUT, UNAVAILABLE, Passing, Scene, play

OPEN_SECONDS = 60
LOOK_SECONDS = 4.5


class Dear(Passing):
    """Ticks take so long that a slice of the rescan is due after every other one, and a claim that reads on after the
    others."""

    row_seconds = 0.024

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self.stamp: datetime | None = None
        self.read_on = asyncio.Event()
        self._swept_past = False

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        leased = await super().claim(table, claim)
        if self._swept_past:
            self.read_on.set()
        if self.stamp is not None:  # claims that read on are at what is newest
            since = claim.since[0] - self.stamp
            self._swept_past = timedelta(0) < since < timedelta(seconds=OPEN_SECONDS / 2)
        return leased

    async def tick(self, table: TableName) -> Tick:
        await asyncio.sleep(LOOK_SECONDS)
        return await super().tick(table)


def test_a_late_commit_is_not_left_to_the_next_rescan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rescan is past the message's place when that appears. Claims that read on went back for it, and the end of
    the rescan does not take them past it."""
    tune(monkeypatch, first_span=40, least_span=10)

    async def scenario(scene: Scene[Dear]) -> None:
        store = scene.store
        await put(store, *(Message(UNAVAILABLE, number) for number in range(400)))
        for row in rows(store):
            row.available_at -= timedelta(hours=1)
        async with scene.relay({"away.**": UnavailableBroker()}):
            await asyncio.sleep(20.0)
            async with store.transaction() as tx:
                await Outbox(TABLE).enqueue(tx, Message(GOOD, "late"))
                store.stamp = store.database.clock()
                for _ in range(OPEN_SECONDS):
                    await asyncio.sleep(1.0)
                    await put(store, Message(UNAVAILABLE, 0))
                store.read_on.clear()
                async with asyncio.timeout(900.0):
                    await store.read_on.wait()
            committed = scene.loop.time()
            await scene.arrival(900.0)
            assert scene.loop.time() - committed < 2 * LOOK_SECONDS + TIMEOUT

    play(Dear, scenario)
