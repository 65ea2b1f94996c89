"""The broker is frozen, crashed and restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.faults.journal import NotHit
from tests.faults.world import World

FEEL_SECONDS = 20.0


async def freeze_broker(world: World) -> str:
    """SIGSTOP: connections stay open and nothing answers."""
    began = time.monotonic()
    await asyncio.to_thread(world.broker.freeze)
    try:
        felt = await world.events.until(began, "BreakerOpened", "Failed", within=FEEL_SECONDS)
    finally:
        await asyncio.to_thread(world.broker.thaw)
    return f"{felt[0]['name']} after {felt[0]['at'] - began:.1f} s"


async def kill_broker(world: World) -> str:
    """SIGKILL, and a start with the same data once relays have missed it."""
    return await _down_and_up(world, world.broker.kill)


async def restart_broker(world: World) -> str:
    """An orderly end, and a start with the same data once relays have missed it."""
    return await _down_and_up(world, world.broker.stop)


async def _down_and_up(world: World, end: Callable[[], None]) -> str:
    began = time.monotonic()
    await asyncio.to_thread(end)
    if world.broker.processes:
        raise NotHit("the broker is still there")
    try:
        felt = await world.events.until(began, "BreakerOpened", "Failed", within=FEEL_SECONDS)
    finally:
        await asyncio.to_thread(world.broker.start)
    return (
        f"{felt[0]['name']} after {felt[0]['at'] - began:.1f} s, back after {time.monotonic() - began:.1f} s"
    )


FAULTS = (freeze_broker, kill_broker, restart_broker)
