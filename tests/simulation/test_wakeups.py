"""Polling for work between two hints: at once while it comes often, less and less while none comes."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from outbox_core.runtime.wakeups import Wakeups
from tests.simulation.loop import VirtualLoop

POLL = 0.5


def polls(seconds: float, *, work_every: float | None = None) -> list[float]:
    """When a relay polls, in so many seconds after a hint, if it then finds something as often as that."""
    loop = VirtualLoop()

    async def poll() -> list[float]:
        wakeups, began, found = Wakeups(POLL), loop.time(), []
        next_work = began + work_every if work_every is not None else float("inf")
        wakeups.hint()
        await wakeups.wait(float("inf"))  # the hint itself ends it
        while (now := loop.time()) < began + seconds:
            found.append(now - began)
            if now >= next_work:
                next_work = now + (work_every or 0.0)
                wakeups.worked()
            await wakeups.wait(float("inf"))
        return found

    try:
        return loop.run_until_complete(asyncio.wait_for(poll(), 100.0))
    finally:
        loop.close()


@pytest.mark.parametrize("every", [0.002, 0.01])
def test_what_comes_often_is_polled_for_every_millisecond_or_nearly_so(every: float) -> None:
    pauses = [after - before for before, after in pairwise(polls(1.0, work_every=every))]
    assert max(pauses) < 0.002
    assert sum(pauses) / len(pauses) < 0.0013


def test_what_comes_seldom_is_polled_for_less_and_less() -> None:
    found = polls(3.0)
    eager = [moment for moment in found if moment < 0.06]
    assert 15 <= len(eager) <= 30, "as often as every millisecond would be 60 times"
    pauses = [after - before for before, after in pairwise(eager)]
    assert pauses == pytest.approx(sorted(pauses))
    calm = [moment for moment in found if moment >= 0.07]
    assert len(calm) <= 3.0 / POLL + 1
