"""A run in which nothing is broken: whatever grows then, grows for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tests.faults.plan import TABLE
from tests.faults.world import World

EVERY_SECONDS = 2.0
WARM_UP = 0.25
"""The part of a run that is not looked at: caches fill, and the table has yet to reach its size."""
_SIZES = "SELECT pg_table_size($1::regclass), pg_indexes_size($1::regclass)"
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'outbox:%'"

Samples = Mapping[str, Sequence[tuple[float, float]]]
"""By what was measured: moments of the monotonic clock, and values."""


@dataclass(frozen=True, slots=True)
class Trend:
    """What became of one measure. ``early`` and ``late`` are means of the first and the last third after warming up."""

    early: float
    late: float
    per_hour: float
    allowed: float
    """What ``late`` may be at most."""

    @property
    def good(self) -> bool:
        return self.late <= self.allowed


ALLOWED: Mapping[str, tuple[float, float]] = {
    "memory_mb": (1.10, 5.0),
    "files": (1.0, 1.0),
    "tasks": (1.0, 3.0),
    "sessions": (1.0, 1.0),
    "table_mb": (1.5, 2.0),
    "indexes_mb": (1.5, 2.0),
    "latency_ms": (1.5, 20.0),
}
"""How many times the early mean, and how much on top of that, the late mean of a measure may be."""


async def watch(world: World) -> Samples:
    """Hold the load for the plan's time and measure all the while."""
    began = time.monotonic()
    sizes: dict[str, list[tuple[float, float]]] = {"table_mb": [], "indexes_mb": [], "sessions": []}
    async with world.admin() as admin:
        while time.monotonic() < began + world.plan.seconds:
            table, indexes = await admin.fetchrow(_SIZES, TABLE)
            now = time.monotonic()
            sizes["table_mb"].append((now, table / 1e6))
            sizes["indexes_mb"].append((now, indexes / 1e6))
            sizes["sessions"].append((now, float(await admin.fetchval(_SESSIONS))))
            await asyncio.sleep(EVERY_SECONDS)
    vitals = [line for line in world.events.since(began) if line["kind"] == "vitals"]
    told = {
        name: [(line["at"], float(line[name])) for line in vitals] for name in ("memory_mb", "files", "tasks")
    }
    return {**told, **sizes, "latency_ms": _latencies(world, began)}


def _latencies(world: World, began: float) -> list[tuple[float, float]]:
    """Of every message that its writer knew to be committed: from then until the consumer had it."""
    committed = {
        event_id: line["at"]
        for line in world.history.lines()
        if line["kind"] == "ok" and line["at"] >= began
        for event_id in line["kept"]
    }
    return [
        (line["at"], max(line["at"] - committed[event_id], 0.0) * 1000)
        for line in world.arrivals.lines()
        for event_id in line["ids"]
        if event_id in committed
    ]


def trends(samples: Samples) -> dict[str, Trend]:
    """Slopes and means of everything that was measured often enough."""
    return {name: _trend(name, points) for name, points in samples.items() if len(points) >= 12}


def _trend(name: str, points: Sequence[tuple[float, float]]) -> Trend:
    first, last = points[0][0], points[-1][0]
    kept = [point for point in points if point[0] >= first + (last - first) * WARM_UP]
    third = max(len(kept) // 3, 1)
    early, late = (fmean(value for _, value in part) for part in (kept[:third], kept[-third:]))
    times, values = [at for at, _ in kept], [value for _, value in kept]
    middle, mean = fmean(times), fmean(values)
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - mean) for at, value in kept) / spread if spread else 0.0
    factor, more = ALLOWED[name]
    return Trend(early, late, slope * 3600, early * factor + more)


def table(found: Mapping[str, Trend]) -> str:
    """A line for each measure."""
    lines = [f"  {'measure':<12} {'early':>10} {'late':>10} {'an hour':>10}"]
    for name, trend in found.items():
        mark = "" if trend.good else f"  GROWS: more than {trend.allowed:.1f}"
        lines.append(f"  {name:<12} {trend.early:>10.1f} {trend.late:>10.1f} {trend.per_hour:>+10.1f}{mark}")
    return "\n".join(lines)
