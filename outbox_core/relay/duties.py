"""What a run is there for: delivering until it is stopped, or until nothing is due any more."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from outbox_core.relay.endings import cut_off

if TYPE_CHECKING:
    from outbox_core.relay.lane import Lane


async def until_stopped(
    lanes: Sequence[Lane], chores: Sequence[Callable[[], Coroutine[Any, Any, None]]], stop_asked: anyio.Event
) -> None:
    """Claim, and do the chores beside it."""
    async with anyio.create_task_group() as claiming:
        for lane in lanes:
            claiming.start_soon(lane.claim)
        for chore in chores:
            claiming.start_soon(chore)
        await stop_asked.wait()
        claiming.cancel_scope.cancel()
    if not stop_asked.is_set():
        raise cut_off()


async def until_drained(lanes: Sequence[Lane], stop_asked: anyio.Event, *, patient: bool) -> None:
    """Claim what is due, or until a stop is asked for. A ``patient`` one waits for tables that another relay leads."""
    async with anyio.create_task_group() as draining:

        async def give_up() -> None:
            await stop_asked.wait()
            draining.cancel_scope.cancel()

        draining.start_soon(give_up)
        drained = 0

        async def drain(lane: Lane) -> None:
            nonlocal drained
            await lane.drain(patient=patient)
            drained += 1

        async with anyio.create_task_group() as all_lanes:
            for lane in lanes:
                all_lanes.start_soon(drain, lane)
        if drained < len(lanes):
            raise cut_off()
        draining.cancel_scope.cancel()
