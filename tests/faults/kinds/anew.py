"""Relays whose sessions were ended: who led says so, and each connects anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.faults.journal import promised
from tests.faults.processes import RelayPlace
from tests.faults.world import World
from tests.services.proxy import FaultProxy

FEEL_SECONDS = 15.0


async def connected_anew(
    world: World, relay: RelayPlace, since: float, accepted: Mapping[FaultProxy, int]
) -> str:
    """What the relay that worked said, where one leads. ``accepted`` has each proxy's connections before."""
    said = ""
    with promised():
        if world.plan.ordered:
            (felt, *_) = await world.events.until(
                since, "Reconnecting", "LeaderLost", within=FEEL_SECONDS, relay=relay.name
            )
            said = f", {relay.base} said {felt['name']}"
        for proxy, before in accepted.items():
            await proxy.wait_for(accepts_more_than(before), within=FEEL_SECONDS)
    return said


def accepts_more_than(count: int) -> Callable[[FaultProxy], bool]:
    return lambda proxy: proxy.accepted > count
