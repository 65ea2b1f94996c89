"""A run in which nothing is broken: whatever grows then, grows for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median
from typing import Any

from tests.faults.plan import TABLE
from tests.faults.world import World

EVERY_SECONDS = 2.0
WARM_UP, WARM_UP_SECONDS = 0.25, 120.0
"""What is not looked at, as a part of a run and at least: caches fill, and the table has yet to reach its size."""
FEWEST = 9
"""Samples after the warm-up, without which nothing is said of a measure."""
BEGINNING_SECONDS = 10.0
"""Whoever told its vitals until then, from when the watch began, has to go on telling them to its end."""
SILENT_SECONDS = 30.0
"""For how long before the end of the watch nothing may have been heard of a relay."""
BREAKS = ("Reconnecting", "LeaderLost", "BreakerOpened")
"""Events that a relay has no reason to tell while nothing is broken."""
_VACUUM_SOON = ("ALTER SYSTEM SET autovacuum_naptime = '5s'", "SELECT pg_reload_conf()")
"""By default the room of deleted rows is found once a minute, and sizes settle only after several."""
_SIZES = "SELECT pg_table_size($1::regclass), pg_indexes_size($1::regclass)"
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'outbox:%'"

Samples = Mapping[str, Sequence[tuple[float, float]]]
"""By what was measured, and of which relay: moments of the monotonic clock, and values."""


@dataclass(frozen=True, slots=True)
class Limit:
    """By how much a measure may grow while it is watched: by a share of its mean in an hour, and by an amount of
    noise in all, which the shortest soak has as well as the longest. And how high it may be all the while."""

    share_per_hour: float
    noise: float
    most: float = inf


LIMITS: Mapping[str, Limit] = {
    # A process under load goes on taking pages for minutes before it has all it needs. Two megabytes in the 300 s that
    # the long form's soak watches are 45 bytes a message; in an hour, which tells more, 4.
    "memory_mb": Limit(0.01, 2.0),
    "files": Limit(0.0, 0.9),
    "tasks": Limit(0.0, 1.9),
    "sessions": Limit(0.0, 0.9),
    "table_mb": Limit(0.05, 1.0),
    "indexes_mb": Limit(0.05, 1.0),
    "latency_ms": Limit(0.05, 10.0, most=1000.0),
}
OF_RELAYS = ("memory_mb", "files", "tasks")
"""Measured in each relay by itself: what one gives back must not hide what another keeps."""


@dataclass(frozen=True, slots=True)
class Trend:
    """What became of one measure after its warm-up: its mean, the slope of a straight line, and what that comes to."""

    mean: float
    per_hour: float
    grown: float
    """By the slope, over the time that was looked at."""
    allowed: float

    @property
    def good(self) -> bool:
        return self.grown <= self.allowed


@dataclass(frozen=True, slots=True)
class Watched:
    """What was measured, the relays that have to be among it, and what went wrong meanwhile."""

    samples: Samples
    relays: Sequence[str] = ()
    wrong: Sequence[str] = ()


async def watch(world: World) -> Watched:
    """Hold the load for the plan's time and measure all the while."""
    began = time.monotonic()
    samples: dict[str, list[tuple[float, float]]] = {"table_mb": [], "indexes_mb": [], "sessions": []}
    async with world.admin() as admin:
        for statement in _VACUUM_SOON:
            await admin.execute(statement)
        while time.monotonic() < began + world.plan.seconds:
            table, indexes = await admin.fetchrow(_SIZES, TABLE)
            now = time.monotonic()
            samples["table_mb"].append((now, table / 1e6))
            samples["indexes_mb"].append((now, indexes / 1e6))
            samples["sessions"].append((now, float(await admin.fetchval(_SESSIONS))))
            await asyncio.sleep(EVERY_SECONDS)
    # The proxies of every connection live in this loop, which must not stand still while journals of hours are read.
    return await asyncio.to_thread(_read, world, samples, began, time.monotonic())


def _read(world: World, samples: Samples, began: float, ended: float) -> Watched:
    told = of_relays(world.events.since(began), began, ended, [place.name for place in world.relays])
    measured = {**samples, **told.samples, "latency_ms": _latencies(world, began)}
    return Watched(measured, told.relays, told.wrong)


def of_relays(
    lines: Sequence[Mapping[str, Any]], began: float, ended: float, started: Sequence[str]
) -> Watched:
    """What relays told of themselves from the beginning of a watch to its end; all that were ``started`` have to."""
    told = [line for line in lines if began <= line["at"] <= ended]
    samples: dict[str, list[tuple[float, float]]] = {}
    last: dict[str, float] = {}
    for line in told:
        if line["kind"] == "vitals":
            last[line["relay"]] = line["at"]
            for name in OF_RELAYS:
                samples.setdefault(f"{name} {line['relay']}", []).append((line["at"], float(line[name])))
    beginning = {
        line["relay"] for line in told if line["kind"] == "vitals" and line["at"] <= began + BEGINNING_SECONDS
    }
    relays = sorted(beginning)
    silent = [f"{relay} told nothing of itself at the beginning" for relay in started if relay not in relays]
    silent += [
        f"{relay} told nothing of itself in the last {ended - last[relay]:.0f} s"
        for relay in relays
        if last[relay] < ended - SILENT_SECONDS
    ]
    broke = [
        f"something broke although nothing was broken: {line['relay']} told {line['name']}"
        f" after {line['at'] - began:.1f} s"
        for line in told
        if line.get("name") in BREAKS
    ]
    return Watched(samples, relays, [*silent, *broke])


def _latencies(world: World, began: float) -> list[tuple[float, float]]:
    """Of the messages that writers knew to be committed, from then until a consumer had them: the median of each
    two seconds."""
    committed = {
        event_id: line["at"]
        for line in world.history.lines()
        if line["kind"] == "ok" and line["at"] >= began
        for event_id in line["kept"]
    }
    live = world.consumers[0].base
    buckets: dict[int, list[float]] = {}
    for line in world.arrivals.lines():
        if line["consumer"] == live:
            for event_id in line["ids"]:
                if event_id in committed:
                    waited = max(line["at"] - committed.pop(event_id), 0.0)
                    buckets.setdefault(int((line["at"] - began) / EVERY_SECONDS), []).append(waited * 1000)
    return [(began + number * EVERY_SECONDS, median(found)) for number, found in sorted(buckets.items())]


def trends(samples: Samples) -> dict[str, Trend]:
    """Slopes of everything that was measured often enough."""
    found: dict[str, Trend] = {}
    for name, points in samples.items():
        if points:
            warm = points[0][0] + max((points[-1][0] - points[0][0]) * WARM_UP, WARM_UP_SECONDS)
            kept = [point for point in points if point[0] >= warm]
            if len(kept) >= FEWEST:
                found[name] = _trend(LIMITS[name.partition(" ")[0]], kept)
    return found


def _trend(limit: Limit, points: Sequence[tuple[float, float]]) -> Trend:
    times, values = [at for at, _ in points], [value for _, value in points]
    middle, mean = fmean(times), fmean(values)
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - mean) for at, value in points) / spread
    seconds = times[-1] - times[0]
    allowed = limit.share_per_hour * mean * seconds / 3600 + limit.noise
    return Trend(mean, slope * 3600, slope * seconds, allowed)


def problems(found: Mapping[str, Trend], relays: Sequence[str] = ()) -> list[str]:
    """What grew, and what was not measured: each of `LIMITS` somewhere, and those of relays in each of ``relays``."""
    seen = {name.partition(" ")[0] for name in found}
    of_each = [f"{name} {relay}" for relay in relays for name in OF_RELAYS if name in seen]
    return [
        *(f"{name} grew by {trend.grown:.2f}" for name, trend in found.items() if not trend.good),
        *(
            f"{name} was {trend.mean:.2f} on the average, and may be {most:g}"
            for name, trend in found.items()
            if trend.mean > (most := LIMITS[name.partition(" ")[0]].most)
        ),
        *(f"{name} was measured too rarely to say anything" for name in LIMITS if name not in seen),
        *(f"{name} was measured too rarely to say anything" for name in of_each if name not in found),
    ]


def table(found: Mapping[str, Trend]) -> str:
    """A line for each measure."""
    lines = [f"  {'measure':<16} {'mean':>10} {'grown':>10} {'allowed':>10} {'an hour':>10}"]
    for name, trend in found.items():
        mark = "" if trend.good else "  GROWS"
        lines.append(
            f"  {name:<16} {trend.mean:>10.1f} {trend.grown:>+10.2f} {trend.allowed:>10.2f}"
            f" {trend.per_hour:>+10.1f}{mark}"
        )
    return "\n".join(lines)
