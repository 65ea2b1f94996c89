"""Which fault comes when: every kind once, in the seed's order; then what the goals lack, or what chance brings."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.faults.aims import PAIRS, served, short_of, wanting
from tests.faults.journal import NotHere, NotHit
from tests.faults.kinds import KINDS, broker, network
from tests.faults.kinds.process import points
from tests.faults.world import World

TRIES = 5
TOGETHER = 0.5
TOWARDS_GOALS = 0.85
"""How many of the faults serve the goals, while there is time for others."""
CEILING_SECONDS = 1800.0
BROKER_SIDE = frozenset(fault.__name__ for fault in (*broker.FAULTS, *network.BROKER_FAULTS))
"""Kinds that leave the database and the processes alone, and so can be had beside one that breaks these."""
BOTH_SIDES = frozenset(["stop_relay_cut_off"])
"""Kinds that are to be had alone: they break the way to the broker and that to the database."""
PAUSE_SECONDS = (0.2, 1.0)
OFTEN = {
    "kill_relay": 8, "kill_relay_at_a_point": 6, "kill_writer": 8, "kill_postgres": 3, "kill_broker": 3,
    "restart_postgres": 2, "restart_broker": 2,
}  # fmt: skip
"""How much likelier than others a kind is, once every kind has had its turn."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One fault. Times are of the monotonic clock; ``healed`` is when nothing was broken any more, ``recovered`` when
    everybody worked again who has to."""

    kind: str
    began: float
    healed: float
    recovered: float | None
    hit: bool
    told: str
    broken_promise: bool = False
    """Whether something did not do what it had promised while it was broken, or the fault could not be made at all."""
    paired: bool = False
    """Whether another was made at the same time."""
    resumed: float | None = None
    """When the first message was published after it."""
    silent: str = ""
    """Who did not work again; empty when all did."""


async def rage(
    world: World,
    kinds: Sequence[str],
    seconds: float,
    tell: Callable[[Deed], None],
    *,
    goals: Mapping[str, int] | None = None,
    ceiling: float = CEILING_SECONDS,
) -> tuple[list[Deed], dict[str, str]]:
    """Break things for so many seconds, and until every kind has been felt and the ``goals`` of `short_of` are reached.

    A kind that nobody feels is tried again. ``ceiling`` seconds are the end, whatever the goals lack by then; so is a
    fault after which nothing works any more. Returns what was done, and the kinds that this machine cannot have with
    the reason. The seed decides which kinds come, in which order; only what has to be tried again depends on timing.
    """
    aims = served(goals or {}, kinds, [*KINDS])
    chance = random.Random(f"nemesis:{world.plan.seed}:{world.plan.broker}:{world.plan.ordered}")
    deeds: list[Deed] = []
    missing: dict[str, str] = {}
    tries: Counter[str] = Counter()
    felt: Counter[str] = Counter()
    began = time.monotonic()
    queue = [*kinds]
    chance.shuffle(queue)
    while True:
        passed = time.monotonic() - began
        available = [kind for kind in kinds if kind not in missing]
        short = short_of(aims, felt, points(world), world.visited)
        if not available or passed > max(ceiling, seconds) or not (queue or short or passed < seconds):
            break
        needed = wanting(short, available)
        if queue:
            together: tuple[str, ...] = (queue.pop(),)
        elif short.get(PAIRS):
            together = _pair(chance, available)
        elif needed and (passed >= seconds or chance.random() < TOWARDS_GOALS):
            together = (_weighed(chance, needed),)
        elif passed < seconds:
            together = _by_chance(chance, available)
        else:
            break  # what is lacking cannot be had here
        await asyncio.sleep(chance.uniform(*PAUSE_SECONDS))
        done = await _together(world, together, missing)
        for deed in done:
            deeds.append(deed)
            tell(deed)
            tries[deed.kind] += 1
            felt[deed.kind] += deed.hit
            if not felt[deed.kind] and len(together) == 1 and tries[deed.kind] < TRIES:
                queue.insert(0, deed.kind)
        if len(together) > 1:
            tries[PAIRS] += 1
            # Which of the two is felt may depend on the other: twice as many are tried as are wanted, and no more.
            both = len(done) > 1 and all(deed.hit for deed in done)
            felt[PAIRS] += both or tries[PAIRS] > 2 * aims.get(PAIRS, 0)
        if any(deed.recovered is None for deed in done):
            break
    return deeds, missing


def lacking(
    world: World, goals: Mapping[str, int], kinds: Sequence[str], felt: Mapping[str, int]
) -> dict[str, int]:
    """What a run has come short of, of the goals that its kinds can reach."""
    aims = {aim: count for aim, count in served(goals, kinds, [*KINDS]).items() if aim != PAIRS}
    return short_of(aims, felt, points(world), world.visited)


def _weighed(chance: random.Random, weights: Mapping[str, int]) -> str:
    return chance.choices([*weights], [*weights.values()])[0]


def _by_chance(chance: random.Random, kinds: Sequence[str]) -> tuple[str, ...]:
    """One fault, or two at once."""
    first = _weighed(chance, {kind: OFTEN.get(kind, 1) for kind in kinds})
    return _pair(chance, kinds) if first in BROKER_SIDE and chance.random() < TOGETHER else (first,)


def _pair(chance: random.Random, kinds: Sequence[str]) -> tuple[str, ...]:
    """A fault on the brokers' side and one of processes or the database, as far as there are such."""
    brokers = [kind for kind in kinds if kind in BROKER_SIDE]
    others = [kind for kind in kinds if kind not in BROKER_SIDE | BOTH_SIDES]
    return tuple(chance.choice(several) for several in (brokers, others) if several) or (kinds[0],)


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

    world.back = None
    done = [deed for deed in await asyncio.gather(*map(one, kinds)) if deed is not None]
    alone = len(kinds) == 1
    # Only what is published from now on shows that they work: what was acknowledged before may be told after the fault.
    found = await world.until_working(max((ended for _, _, ended, *_ in done), default=None))
    if alone and world.back is not None:
        done = [(kind, began, world.back, *told) for kind, began, _, *told in done]
    return [
        Deed(
            kind, began, healed, found.whole, hit, told, broken,
            paired=not alone, resumed=found.resumed, silent=found.silent,
        )
        for kind, began, healed, hit, told, broken in done
    ]  # fmt: skip
