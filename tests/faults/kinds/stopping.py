"""Relays are told to stop, when all is well and when they can reach nobody."""

from __future__ import annotations

import time

from tests.faults.journal import NotHit
from tests.faults.kinds.in_hand import until_leased
from tests.faults.stops import Stop, stops
from tests.faults.world import EXIT_SECONDS, World

FEEL_SECONDS = 15.0


async def stop_relay(world: World) -> str:
    """SIGTERM, as a deployment sends it; the relay must be gone in its grace and a second."""
    relay = await world.until_leader()
    await world.until_running()
    name, began = relay.name, time.monotonic()
    code = await relay.terminate(EXIT_SECONDS)
    relay.start()
    return f"{name} stopped in {in_time(world, name, code, began).seconds:.2f} s"


async def stop_relay_cut_off(world: World) -> str:
    """SIGTERM to a relay whose messages are on their way to a broker that does not answer, and whose database does not
    answer either: it must be gone in its grace and a second all the same."""
    relay = await world.until_leader()
    await world.until_running()
    database, broker = world.proxy_of(relay), world.broker_proxy
    async with world.admin() as admin:
        broker.hold()
        try:
            await broker.wait_for(lambda proxy: proxy.requests.held > 0, within=FEEL_SECONDS)
            # What waits there may be another relay's.
            await until_leased(admin, relay.name, FEEL_SECONDS)
            database.hold()
            began = time.monotonic()
            code = await relay.terminate(EXIT_SECONDS)
        finally:
            broker.pass_through()
            database.pass_through()
    name = relay.name
    relay.start()
    stop = in_time(world, name, code, began)
    left = sum(line["abandoned"] for line in world.events.since(began, "Stopped", relay=name))
    if not left:
        raise NotHit(f"{name} had nothing in hand")
    return f"{name} stopped in {stop.seconds:.2f} s and left {left} rows to their leases"


def in_time(world: World, name: str, code: int | None, began: float) -> Stop:
    """How a relay stopped that did so in its time; AssertionError for one that did not."""
    stop = next(iter(stops(world.events.since(began, relay=name))), None)
    if code != 0 or stop is None:
        raise AssertionError(f"{name} did not stop in order: it ended with {code}")
    if stop.slow:
        raise AssertionError(str(stop))
    return stop


FAULTS = (stop_relay, stop_relay_cut_off)
