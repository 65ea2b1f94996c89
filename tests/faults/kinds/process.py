"""Processes are killed, frozen, blocked and stopped."""

from __future__ import annotations

import asyncio
import signal
import time

from tests.faults.journal import NotHit, eventually
from tests.faults.plan import GRACE
from tests.faults.processes import RelayPlace
from tests.faults.world import EXIT_SECONDS, World

POINTS = (
    "claim.before", "claim.during", "claim.after", "dispatch.before", "dispatch.during", "dispatch.after",
    "publish.before", "publish.during", "publish.after",
)  # fmt: skip
LEADER_POINTS = ("campaign.during", "campaign.after", "heartbeat.before", "heartbeat.during")
STOP_SLACK = 1.0
"""What a loaded machine may add to the time in which a relay has promised to stop."""


async def kill_relay(world: World) -> str:
    """SIGKILL the relay that works, at a moment of chance."""
    relay, began = await world.until_leader(), time.monotonic()
    await asyncio.sleep(world.random.random() * 0.2)
    code = await relay.kill()
    if code != -signal.SIGKILL:
        raise NotHit(f"the relay ended with {code} before it was killed")
    try:
        seconds = await _taken_over(world, relay, began)
    finally:
        relay.start()
    return f"killed {relay.base}{seconds}"


async def kill_relay_at_a_point(world: World) -> str:
    """Relays that kill themselves at a named moment of their work."""
    if not world.points:
        world.points = [*POINTS, *(LEADER_POINTS if world.plan.ordered else ())]
        world.random.shuffle(world.points)
    point, nth = world.points.pop(), world.random.choice((1, 2, 5))
    leader = await world.until_leader()
    victim = world.random.choice([relay for relay in world.relays if relay is not leader])
    await victim.kill()
    began = time.monotonic()
    victim.start(point=point, nth=nth)
    victim.planned_end = True
    leads = world.plan.ordered and not point.startswith("campaign.")
    if leads:
        await world.events.until(began, "Running", within=20.0, relay=victim.name)
        await leader.kill()
    try:
        await eventually(
            lambda: [line for line in world.events.since(began) if line["kind"] == "fault"],
            20.0,
            f"no relay came to {point} for the {nth}. time",
        )
        await eventually(lambda: victim.exit_code == -signal.SIGKILL, 5.0, f"{victim.name} did not die")
    finally:
        await victim.kill()
        victim.start()
        if leads:
            leader.start()
    return f"{victim.base} died at {point} for the {nth}. time"


async def freeze_relay(world: World) -> str:
    """SIGSTOP the relay that works for longer than its leases, then let it go on."""
    relay, began = await world.until_leader(), time.monotonic()
    relay.send(signal.SIGSTOP)
    try:
        seconds = await _taken_over(world, relay, began)
        await asyncio.sleep(max(0.0, began + world.plan.settings["lock_ttl"] + 1.0 - time.monotonic()))
    finally:
        thawed = time.monotonic()
        relay.send(signal.SIGCONT)
    felt = await world.events.until(
        thawed, "LeaseLost", "LeaderLost", "Reconnecting", "Published", within=15.0, relay=relay.name
    )
    return f"froze {relay.base}{seconds}; then it said {felt[0]['name']}"


async def block_event_loop(world: World) -> str:
    """The relay that works does something else, on its own event loop, for longer than its leases."""
    relay, began = await world.until_leader(), time.monotonic()
    relay.send(signal.SIGUSR1)
    await world.events.until(began, "Blocked", within=10.0, relay=relay.name)
    seconds = await _taken_over(world, relay, began)
    felt = await world.events.until(
        began + world.plan.settings["lock_ttl"],
        "LeaseLost", "LeaderLost", "Reconnecting", "Published",
        within=20.0,
        relay=relay.name,
    )  # fmt: skip
    return f"blocked {relay.base}{seconds}; then it said {felt[0]['name']}"


async def stop_relay(world: World) -> str:
    """SIGTERM, as a deployment sends it; the relay must be gone in its grace and a second."""
    relay = await world.until_leader()
    await world.until_running()
    began = time.monotonic()
    code = await relay.terminate(EXIT_SECONDS)
    ended = world.events.since(began, "Ended", relay=relay.name)
    if code != 0 or not ended:
        raise AssertionError(f"{relay.name} did not stop in order: it ended with {code}")
    seconds = ended[0]["at"] - began
    if seconds > GRACE + 1.0 + STOP_SLACK:
        raise AssertionError(f"{relay.name} took {seconds:.1f} s to stop, with a grace of {GRACE:g} s")
    relay.start()
    return f"{relay.base} stopped in {seconds:.2f} s"


async def kill_writer(world: World) -> str:
    """SIGKILL a writer, likely in the middle of a transaction."""
    writer = world.random.choice(world.writers)
    code = await writer.kill()
    if code != -signal.SIGKILL:
        raise NotHit(f"the writer ended with {code} before it was killed")
    writer.start()
    return f"killed {writer.base}"


async def _taken_over(world: World, relay: RelayPlace, since: float) -> str:
    """Wait until another relay does the work."""
    name = "LeaderGained" if world.plan.ordered else "Published"
    taken = await eventually(
        lambda: [line for line in world.events.since(since, name) if line["relay"] != relay.name],
        20.0,
        f"no other relay took over from {relay.name}",
    )
    if not world.plan.ordered:
        return ""
    return f", {taken[0]['relay']} took over after {taken[0]['at'] - since:.1f} s"


FAULTS = (kill_relay, kill_relay_at_a_point, freeze_relay, block_event_loop, stop_relay, kill_writer)
