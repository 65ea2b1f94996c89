"""Who has what in hand: rows that a relay has leased, transactions that a writer has begun."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.faults.journal import NotHit, eventually
from tests.faults.plan import TABLE
from tests.faults.processes import RelayPlace, WriterPlace
from tests.faults.world import World

CATCH_SECONDS = 20.0
REACH_SECONDS = 20.0
_SETTLE_SECONDS = 0.03
"""After which what a stopped process has sent is done."""
_RECENT_STEPS = 3_000
_LEASED = f"""
SELECT count(*) FROM {TABLE}
WHERE published_at IS NULL AND dead_at IS NULL AND lock_token IN (
    SELECT new_token FROM faults_trail
    WHERE who = $1 AND number > (SELECT max(number) - {_RECENT_STEPS} FROM faults_trail)
)
"""  # noqa: S608


async def leased(admin: Any, relay: str) -> int:
    """How many rows are leased to a relay process, by the database's own record of who took them."""
    return int(await admin.fetchval(_LEASED, relay))


async def until_leased(admin: Any, relay: str, within: float) -> None:
    """Wait until a relay process has leased something."""
    deadline = time.monotonic() + within
    while not await leased(admin, relay):
        if time.monotonic() > deadline:
            raise NotHit(f"{relay} leased nothing within {within:g} s")
        await asyncio.sleep(0.02)


async def until_free(admin: Any, relay: str, within: float) -> None:
    """Wait until everything that a relay process had leased is somebody else's, or done."""
    deadline = time.monotonic() + within
    while left := await leased(admin, relay):
        if time.monotonic() > deadline:
            raise NotHit(f"{left} rows were still leased to {relay} after {within:g} s")
        await asyncio.sleep(0.1)


async def caught_relay(world: World, admin: Any) -> tuple[RelayPlace, int]:
    """A relay stopped at a moment of chance at which it has rows in hand, and how many; the caller ends or thaws it."""
    deadline = time.monotonic() + CATCH_SECONDS
    while time.monotonic() < deadline:
        relay = await world.until_leader()
        await asyncio.sleep(world.random.uniform(0.0, 0.1))
        rows = 0
        await relay.freeze()
        try:
            await asyncio.sleep(_SETTLE_SECONDS)
            rows = await leased(admin, relay.name)
        finally:
            if not rows:
                relay.thaw()
        if rows:
            return relay, rows
    raise NotHit(f"no relay was caught with rows in hand within {CATCH_SECONDS:g} s")


async def caught_writer(world: World) -> WriterPlace:
    """A writer stopped between the first and the last line of a transaction."""
    deadline = time.monotonic() + CATCH_SECONDS
    while time.monotonic() < deadline:
        writer = world.random.choice(world.writers)
        await asyncio.sleep(world.random.uniform(0.0, 0.05))
        await writer.freeze()
        if in_doubt(world, writer.name):
            return writer
        writer.thaw()
    raise NotHit(f"no writer was caught in a transaction within {CATCH_SECONDS:g} s")


def in_doubt(world: World, writer: str) -> list[str]:
    """The ids of the transaction that a writer process has begun and not ended."""
    last = next((line for line in reversed(world.history.lines()) if line["writer"] == writer), None)
    return [*last["kept"], *last["back"]] if last is not None and last["kind"] == "invoke" else []


async def came_to(world: World, relay: RelayPlace, point: str, since: float) -> float:
    """Wait until a relay has come to the moment it was told, and when that was."""
    (line, *_) = await eventually(
        lambda: world.events.since(since, kind="fault", relay=relay.name, point=point),
        REACH_SECONDS,
        f"{relay.name} did not come to {point}",
    )
    return float(line["at"])
