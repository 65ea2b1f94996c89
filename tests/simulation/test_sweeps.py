"""Looking at everything again: soon enough for what only that finds, and not all the time."""

from __future__ import annotations

import asyncio

import pytest

from outbox_core.relay.wakeups import after_sweep
from tests.simulation.loop import VirtualLoop


@pytest.mark.parametrize(
    ("took", "pause"),
    [(0.0, 1.0), (0.008, 1.0), (0.03, 3.0), (0.1, 5.0), (0.25, 5.0), (0.5, 10.0), (1.0, 15.0), (300.0, 15.0)],
)
def test_the_pause_after_a_sweep_is_in_proportion_to_it_and_bounded(took: float, pause: float) -> None:
    """A process that stood still during one must not take it for the cost of it."""
    loop = VirtualLoop()

    async def swept() -> float:
        began = loop.time()
        await asyncio.sleep(took)
        return after_sweep(began) - loop.time()

    try:
        assert loop.run_until_complete(swept()) == pytest.approx(pause)
    finally:
        loop.close()
