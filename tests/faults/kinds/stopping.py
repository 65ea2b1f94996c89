"""Relays are told to stop, when all is well and when they can reach nobody."""

from __future__ import annotations

import time

from tests.faults.stops import stops
from tests.faults.world import EXIT_SECONDS, World

FEEL_SECONDS = 15.0


async def stop_relay(world: World) -> str:
    """SIGTERM, as a deployment sends it; the relay must be gone in its grace and a second."""
    relay = await world.until_leader()
    await world.until_running()
    name, began = relay.name, time.monotonic()
    code = await relay.terminate(EXIT_SECONDS)
    relay.start()
    return in_time(world, name, code, began)


async def stop_relay_cut_off(world: World) -> str:
    """SIGTERM to a relay whose messages are on their way to a broker that does not answer, and whose database does not
    answer either: it must be gone in its grace and a second all the same."""
    relay = await world.until_leader()
    await world.until_running()
    database, broker = world.proxy_of(relay), world.broker_proxy
    broker.hold()
    try:
        await broker.wait_for(lambda proxy: proxy.requests.held > 0, within=FEEL_SECONDS)
        database.hold()
        began = time.monotonic()
        code = await relay.terminate(EXIT_SECONDS)
    finally:
        broker.pass_through()
        database.pass_through()
    name = relay.name
    relay.start()
    return in_time(world, name, code, began)


def in_time(world: World, name: str, code: int | None, began: float) -> str:
    """What is to be said of a relay that stopped in its time; AssertionError for one that did not."""
    stop = next(iter(stops(world.events.since(began, relay=name))), None)
    if code != 0 or stop is None:
        raise AssertionError(f"{name} did not stop in order: it ended with {code}")
    if stop.slow:
        raise AssertionError(str(stop))
    (told, *_) = world.events.since(began, "Stopped", relay=name) or [{"abandoned": 0}]
    return f"{name} stopped in {stop.seconds:.2f} s, {told['abandoned']} rows left to their leases"


FAULTS = (stop_relay, stop_relay_cut_off)
