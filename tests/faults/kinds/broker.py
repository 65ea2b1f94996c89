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
    """SIGKILL, and a start with the same data."""

    def crash() -> None:
        world.broker.kill()
        world.broker.start()

    return await _back_again(world, crash)


async def restart_broker(world: World) -> str:
    """An orderly end, and a start with the same data."""
    return await _back_again(world, world.broker.restart)


async def _back_again(world: World, restart: Callable[[], None]) -> str:
    began = time.monotonic()
    before = {process.pid for process in world.broker.processes}
    await asyncio.to_thread(restart)
    if before & {process.pid for process in world.broker.processes}:
        raise NotHit("the broker was not started again")
    felt = await world.events.until(began, "BreakerOpened", "Failed", within=FEEL_SECONDS)
    return f"back after {time.monotonic() - began:.1f} s; relays said {felt[0]['name']}"


FAULTS = (freeze_broker, kill_broker, restart_broker)
