"""Processes are killed, frozen, blocked and stopped: with something in hand."""

from __future__ import annotations

import asyncio
import random
import signal
import time

from tests.faults.journal import Line, NotHit, eventually, promised
from tests.faults.kinds.in_hand import came_to, caught_relay, caught_writer, in_doubt, leased, until_free
from tests.faults.plan import BLOCK_MORE_SECONDS
from tests.faults.processes import RelayPlace
from tests.faults.world import World

POINTS = (
    "claim.before", "claim.during", "claim.after", "dispatch.before", "dispatch.during", "dispatch.after",
    "publish.before", "publish.during", "publish.after", "fail.before", "fail.during", "fail.after",
)  # fmt: skip
LEADER_POINTS = (
    "campaign.before", "campaign.during", "campaign.after",
    "heartbeat.before", "heartbeat.during", "heartbeat.after",
)  # fmt: skip
RARE = ("fail.", "campaign.")
"""Moments that come seldom: the first of them is taken."""
FREEZE_POINTS = ("publish.before", "claim.after", "dispatch.before")
"""Moments at which a relay has rows in hand: acknowledged by the broker, or claimed and not yet dispatched."""
TAKEN_SECONDS = 20.0
"""In which other relays must have found the rows of one that stands still, from the end of its leases on."""
TAKEOVERS = 4
"""In so many times its setting another leads: the last heartbeat, the campaign, and a machine that is busy."""
TELL_SECONDS = 15.0


def points(world: World) -> tuple[str, ...]:
    """Every moment at which a relay of this run can be made to die."""
    return POINTS + LEADER_POINTS if world.plan.ordered else POINTS


async def kill_relay(world: World) -> str:
    """SIGKILL the relay that works, at a moment of chance at which it has rows in hand."""
    async with world.admin() as admin:
        relay, _ = await caught_relay(world, admin)
        began = time.monotonic()
        try:
            code = await relay.kill()
            world.back = time.monotonic()  # whoever is there has to do its work from now on
            rows = await leased(admin, relay.name)
            if code != -signal.SIGKILL or not rows:
                raise NotHit(f"the relay ended with {code} and left {rows} rows leased")
            seconds = await _taken_over(world, relay, began)
        finally:
            relay.start()
    return f"killed {relay.base}, which left {rows} rows leased{seconds}"


async def kill_relay_at_a_point(world: World) -> str:
    """A relay kills itself at a named moment of its work."""
    if not world.points:
        world.points = [*points(world)]
        random.Random(f"{world.plan.seed}:{world.plan.broker}:{sum(world.visited.values())}").shuffle(
            world.points
        )
    point = world.points.pop()
    nth = 1 if point.startswith(RARE) else world.random.choice((1, 2, 5))
    leader = await world.until_leader()
    in_election = point.startswith("campaign.")
    victim = _another(world, leader) if in_election else leader
    await world.until_running()
    began = time.monotonic()
    if in_election:
        await leader.kill()  # so that the campaign it dies in is one that it can win
    victim.planned_end = True
    victim.order(point, nth, "kill")
    try:
        await came_to(world, victim, point, began)
        await eventually(lambda: victim.exit_code == -signal.SIGKILL, 5.0, f"{victim.name} did not die")
        world.visited[point] += 1
        async with world.admin() as admin:
            rows = await leased(admin, victim.name)
    except BaseException:
        world.points.insert(0, point)
        raise
    finally:
        await victim.kill()
        victim.start()
        if in_election:
            leader.start()
    return f"{victim.base} died at {point} for the {nth}. time, and left {rows} rows leased"


async def freeze_relay(world: World) -> str:
    """A relay stands still for longer than its leases, with rows in hand; what it writes when it goes on is refused."""
    relay, began = await world.until_leader(), time.monotonic()
    await world.until_running()
    point = world.random.choice(FREEZE_POINTS)
    relay.order(point, 1, "stop")
    try:
        frozen = await came_to(world, relay, point, began)
        async with world.admin() as admin:
            rows = await leased(admin, relay.name)
            if not rows:
                raise NotHit(f"{relay.name} had no rows in hand when it froze at {point}")
            seconds = await _taken_over(world, relay, frozen)
            lock_ttl = world.plan.settings["lock_ttl"]
            await asyncio.sleep(max(0.0, frozen + lock_ttl + 0.5 - time.monotonic()))
            with promised():
                await until_free(admin, relay.name, TAKEN_SECONDS)
    finally:
        thawed = time.monotonic()
        relay.order()  # one that did not come to it is not to do so later
        relay.thaw()
        world.back = thawed
    refused = await _refused(world, relay, thawed)
    return (
        f"{relay.base} froze at {point} with {rows} rows{seconds};"
        f" thawed after {thawed - frozen:.1f} s, {refused}"
    )


async def block_event_loop(world: World) -> str:
    """A relay does something else, on its own event loop, for longer than its leases, with rows in hand."""
    relay, began = await world.until_leader(), time.monotonic()
    await world.until_running()
    relay.order("publish.before", 1, "block")
    try:
        blocked = await came_to(world, relay, "publish.before", began)
    except NotHit:
        relay.order()
        raise
    async with world.admin() as admin:
        rows = await leased(admin, relay.name)
    if not rows:
        raise NotHit(f"{relay.name} had no rows in hand when it was blocked")
    seconds = await _taken_over(world, relay, blocked)
    lock_ttl = world.plan.settings["lock_ttl"]
    world.back = blocked + lock_ttl + BLOCK_MORE_SECONDS
    refused = await _refused(world, relay, blocked + lock_ttl)
    return f"blocked {relay.base} with {rows} rows in hand{seconds}; then {refused}"


async def kill_writer(world: World) -> str:
    """SIGKILL a writer within a transaction: nobody tells what became of it."""
    writer = await caught_writer(world)
    try:
        code = await writer.kill()
        ids = in_doubt(world, writer.name)
        if code != -signal.SIGKILL or not ids:
            raise NotHit(f"the writer ended with {code} and left {len(ids)} messages in doubt")
    finally:
        writer.start()
    return f"killed {writer.base} within a transaction, {len(ids)} messages in doubt"


def _another(world: World, relay: RelayPlace) -> RelayPlace:
    return world.random.choice([place for place in world.relays if place is not relay])


async def _refused(world: World, relay: RelayPlace, since: float) -> str:
    """What a relay told of its writes that came too late; there must be one."""
    with promised():
        lost = await world.events.until(since, "LeaseLost", within=TELL_SECONDS, relay=relay.name)
    writes = sorted({line["write"] for line in lost})
    return f"{len(lost)} late writes ({', '.join(writes)}) were refused"


async def _taken_over(world: World, relay: RelayPlace, since: float) -> str:
    """Wait until another relay does the work."""
    name = "LeaderGained" if world.plan.ordered else "Published"
    within = TAKEOVERS * world.plan.settings["takeover"] if world.plan.ordered else TAKEN_SECONDS

    def others() -> list[Line]:
        return [line for line in world.events.since(since, name) if line["relay"] != relay.name]

    with promised():
        taken = await eventually(others, within, f"no other relay took over from {relay.name}")
    if not world.plan.ordered:
        return ""
    return f", {taken[0]['relay']} took over after {taken[0]['at'] - since:.1f} s"


FAULTS = (kill_relay, kill_relay_at_a_point, freeze_relay, block_event_loop, kill_writer)
