"""What one long run has to reach, and what it did reach."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.faults.aims import EVERY_POINT, PAIRS
from tests.faults.kinds.process import LEADER_POINTS, POINTS
from tests.faults.nemesis import Deed
from tests.faults.suites import CYCLES, EXAMPLES, SEEDS, STEPS, Done
from tests.faults.trial import Result
from tests.integration.relay.crashes import CRASHES

KILLS = ("kill_relay", "kill_relay_at_a_point", "kill_writer", "kill_postgres", "kill_broker")
"""Kinds that end processes with ``kill -9``; each counts as one, however many processes it ends."""
EACH_RUN: Mapping[str, int] = {
    "kill_relay": 10, "kill_writer": 8, "kill_postgres": 3, "restart_postgres": 2, "kill_broker": 3,
    "restart_broker": 2, EVERY_POINT: 1, PAIRS: 6,
}  # fmt: skip
"""How often a kind is to be felt in each of the six runs, which together reach what is `WANTED`."""
WANTED: Mapping[str, int] = {
    "kills": 200,
    "crash_points": len({*POINTS, *LEADER_POINTS}),
    "postgres_restarts": 20,
    "broker_restarts": 20,
    "combinations": 20,
    "simulation_seeds": SEEDS,
    "machine_examples": EXAMPLES,
    "machine_steps": EXAMPLES * STEPS,
    "cancel_points": 1,
    "crashes": len(CRASHES),
    "start_stop_cycles": CYCLES,
}
_POINT = re.compile(r" died at (\S+) ")


def of_faults(results: Sequence[Result]) -> dict[str, int]:
    """What the nemesis did, of what is wanted."""
    by_kind = sum((result.by_kind for result in results), Counter[str]())
    return {
        "kills": sum(by_kind[kind] for kind in KILLS),
        "crash_points": len(crash_points(results)),
        "postgres_restarts": by_kind["restart_postgres"] + by_kind["kill_postgres"],
        "broker_restarts": by_kind["restart_broker"] + by_kind["kill_broker"],
        "combinations": sum(pairs_felt(result.deeds) for result in results),
    }


def pairs_felt(deeds: Iterable[Deed]) -> int:
    """How often two faults were made at once and both were felt. What is made at once is healed at once."""
    pairs = Counter(deed.recovered for deed in deeds if deed.paired and deed.hit)
    return sum(count > 1 for count in pairs.values())


def crash_points(results: Sequence[Result]) -> list[str]:
    """The named moments at which a relay died."""
    deeds = [deed for result in results for deed in result.deeds if deed.hit]
    return sorted({found[1] for deed in deeds if (found := _POINT.search(deed.told))})


def reached(results: Sequence[Result], done: Sequence[Done]) -> dict[str, int]:
    """Every count, 0 for what was not done."""
    counts = Counter(of_faults(results))
    for each in done:
        counts.update({name: count for name, count in each.counts.items() if name != "awaits"})
    return {name: counts[name] for name in WANTED}


def wanted(done: Sequence[Done]) -> dict[str, int]:
    """What each count must be at least: of points to cancel at, as many as there are awaits."""
    awaits = [each.counts["awaits"] for each in done if "awaits" in each.counts]
    return dict(WANTED) | {"cancel_points": max(WANTED["cancel_points"], *awaits, 0)}


def shortfalls(counts: Mapping[str, int], wanted: Mapping[str, int]) -> list[str]:
    """The counts that were not reached."""
    return [
        f"{name.replace('_', ' ')}: {counts.get(name, 0)} of {least}"
        for name, least in wanted.items()
        if counts.get(name, 0) < least
    ]
