"""Which fault comes when. Every kind that is asked for comes once, in the seed's order; then they come by chance."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.faults.journal import NotHere, NotHit
from tests.faults.kinds import KINDS, broker, network
from tests.faults.world import World

TRIES = 5
TOGETHER = 0.5
BROKER_SIDE = frozenset(fault.__name__ for fault in (*broker.FAULTS, *network.BROKER_FAULTS))
"""Kinds that leave the database and the processes alone, and so can be had beside one that breaks these."""
PAUSE_SECONDS = (0.2, 1.0)
OFTEN = {
    "kill_relay": 8, "kill_relay_at_a_point": 6, "kill_writer": 8, "kill_postgres": 3, "kill_broker": 3,
    "restart_postgres": 2, "restart_broker": 2,
}  # fmt: skip
"""How much likelier than others a kind is, once every kind has had its turn."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One fault. Times are of the monotonic clock; ``recovered`` is when messages were published again."""

    kind: str
    began: float
    healed: float
    recovered: float | None
    hit: bool
    told: str
    broken_promise: bool = False
    """Whether something did not do what it had promised while it was broken, or the fault could not be made at all."""


async def rage(
    world: World, kinds: Sequence[str], seconds: float, tell: Callable[[Deed], None]
) -> tuple[list[Deed], dict[str, str]]:
    """Break things for so many seconds, and until every kind has been felt; a kind that nobody feels is tried again.

    Ends early when nothing works any more after a fault. Returns what was done, and the kinds that this machine cannot
    have with the reason.
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
        together = (queue.pop(),) if queue else _by_chance(world, available)
        await asyncio.sleep(world.random.uniform(*PAUSE_SECONDS))
        done = await _together(world, together, missing)
        for deed in done:
            deeds.append(deed)
            tell(deed)
            tries[deed.kind] += 1
            if not deed.hit and len(together) == 1 and tries[deed.kind] < TRIES:
                queue.insert(0, deed.kind)
        if any(deed.recovered is None for deed in done):
            break
    return deeds, missing


def _by_chance(world: World, kinds: Sequence[str]) -> tuple[str, ...]:
    """One fault, or two at once: one on the brokers' side and one of processes or the database."""
    weights = [OFTEN.get(kind, 1) for kind in kinds]
    first = world.random.choices(kinds, weights)[0]
    others = [kind for kind in kinds if kind not in BROKER_SIDE]
    if first in BROKER_SIDE and others and world.random.random() < TOGETHER:
        return first, world.random.choice(others)
    return (first,)


async def _together(world: World, kinds: Sequence[str], missing: dict[str, str]) -> list[Deed]:
    """Do one fault or several at once, heal them all, and see that messages are published again."""

    async def one(kind: str) -> tuple[str, float, float, bool, str, bool] | None:
        began, broken = time.monotonic(), False
        try:
            told, hit = await KINDS[kind](world), True
        except NotHere as reason:
            missing[kind] = str(reason)
            return None
        except (NotHit, TimeoutError) as error:
            told, hit = f"not felt: {error}", False
        except Exception as error:
            # One fault that goes wrong must not take the verdict of a run of hours with it.
            told, hit, broken = f"{type(error).__name__}: {error}", False, True
        return kind, began, time.monotonic(), hit, told, broken

    done = [deed for deed in await asyncio.gather(*map(one, kinds)) if deed is not None]
    recovered: float | None = None
    with contextlib.suppress(NotHit):
        await world.until_working()
        recovered = time.monotonic()
    return [
        Deed(kind, began, healed, recovered, hit, told, broken)
        for kind, began, healed, hit, told, broken in done
    ]
