"""Which fault comes when. Every kind that is asked for comes once, in the seed's order; then they come by chance."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.faults.journal import NotHere, NotHit
from tests.faults.kinds import KINDS
from tests.faults.world import World

TRIES = 3
PAUSE_SECONDS = (0.2, 1.0)


@dataclass(frozen=True, slots=True)
class Deed:
    """One fault. Times are of the monotonic clock; ``recovered`` is when messages were published again."""

    kind: str
    began: float
    healed: float
    recovered: float
    hit: bool
    told: str


async def rage(
    world: World, kinds: Sequence[str], seconds: float, tell: Callable[[Deed], None]
) -> tuple[list[Deed], dict[str, str]]:
    """Break things for so many seconds, and until every kind has been felt; a kind that nobody feels is tried again.

    Returns what was done, and the kinds that this machine cannot have with the reason.
    """
    deeds: list[Deed] = []
    missing: dict[str, str] = {}
    tries: Counter[str] = Counter()
    queue, end = [*kinds], time.monotonic() + seconds
    world.random.shuffle(queue)
    while queue or time.monotonic() < end:
        available = [kind for kind in kinds if kind not in missing]
        if not available:
            break
        kind = queue.pop() if queue else world.random.choice(available)
        await asyncio.sleep(world.random.uniform(*PAUSE_SECONDS))
        try:
            deed = await _one(world, kind)
        except NotHere as reason:
            missing[kind] = str(reason)
            continue
        deeds.append(deed)
        tell(deed)
        tries[kind] += 1
        if not deed.hit and tries[kind] < TRIES:
            queue.insert(0, kind)
    return deeds, missing


async def _one(world: World, kind: str) -> Deed:
    began = time.monotonic()
    try:
        told, hit = await KINDS[kind](world), True
    except (NotHit, TimeoutError) as error:
        told, hit = f"not felt: {error}", False
    healed = time.monotonic()
    await world.until_working()
    return Deed(kind, began, healed, time.monotonic(), hit, told)
