"""Wall clocks jump."""

from __future__ import annotations

import time

from tests.faults.journal import NotHere, NotHit
from tests.faults.kinds.in_hand import caught_relay, until_free
from tests.faults.world import World

HOUR = 3600.0
SOONER_SECONDS = 0.5
_WITHOUT = "moving a program's clock needs a C compiler: apt-get install gcc"


async def jump_database_clock(world: World) -> str:
    """The database's clock goes forward by an hour: every lease is over at once, and others take the rows. It stays.

    Going back is another matter: what was stamped before is due only when the clock has caught up.
    """
    if not world.postgres.clock.movable:
        raise NotHere(_WITHOUT)
    async with world.admin() as admin:
        relay, rows = await caught_relay(world, admin)
        began = time.monotonic()
        try:
            before = await admin.fetchval("SELECT clock_timestamp()")
            world.postgres.clock.move(HOUR)
            moved = (await admin.fetchval("SELECT clock_timestamp()") - before).total_seconds()
            if moved < HOUR:
                raise NotHit(f"the server's clock moved by {moved:.1f} s")
            # Sooner than the leases would have ended by themselves.
            await until_free(admin, relay.name, world.plan.settings["lock_ttl"] - SOONER_SECONDS)
            seconds = time.monotonic() - began
        finally:
            relay.thaw()
    return f"the server's clock moved by {moved:.0f} s; {rows} rows of {relay.base} changed hands after {seconds:.1f} s"


async def jump_relay_clock(world: World) -> str:
    """The clock of the relay that works goes forward by an hour and then back by two: it does not go by it."""
    relay = await world.until_leader()
    clock = world.relay_clocks[world.relays.index(relay)]
    if not clock.movable:
        raise NotHere(_WITHOUT)
    shown: list[float] = []
    try:
        for seconds in (HOUR, -2 * HOUR):
            clock.move(seconds)
            began = time.monotonic()
            (line, *_) = await world.events.until(began, "Published", within=15.0, relay=relay.name)
            shown.append(line["wall"] - time.time())
    finally:
        clock.move(-clock.offset)
    if shown[0] < HOUR / 2 or shown[1] > -HOUR / 2:
        raise NotHit(f"the relay's clock was not off both ways: {shown}")
    return "relay's clock off by " + ", ".join(f"{difference:.0f} s" for difference in shown)


FAULTS = (jump_database_clock, jump_relay_clock)
