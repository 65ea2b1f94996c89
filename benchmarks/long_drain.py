"""A backlog of a million rows, and one of large bodies: a relay's memory, pace and HOT updates.

    python -m benchmarks.long_drain [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

The dispatcher does nothing. The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from benchmarks import common, processes, running
from benchmarks.catalogue import Mode
from benchmarks.children import event_loop
from benchmarks.common import Place
from benchmarks.figures import Section, figure, ratio
from benchmarks.turns import rotated

MEMORY_BAR_MB, GROWTH_BAR, HOT_BAR_PERCENT = 150.0, 1.1, 95.0
MEMORY_ROWS, MEMORY_LARGE_ROWS, HOT_ROWS = 1_000_000, 400, 100_000
"""So many rows the bars are for; with fewer, nothing is judged."""


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    short_rows: int
    rows: int
    large_rows: int
    repeats: int


SIZES = {
    Mode.SMOKE: Size(1_000, 3_000, 8, 1),
    Mode.QUICK: Size(10_000, 30_000, 50, 3),
    Mode.FULL: Size(10_000, 1_000_000, 400, 3),
}


@dataclass(frozen=True)
class Drain:
    """What one drain showed. Memory is resident, in MB."""

    rate: float
    peak: float
    growth: float
    hot: float
    """Of the claims, how many percent rewrote the row in place."""
    memory: list[tuple[int, float]]
    """By rows published."""


def growth(samples: Sequence[tuple[int, float]], rows: int) -> float:
    """How memory ends over how it was once warm: 1 is flat.

    The first quarter of the rows is the warming up, while claims grow to their size and buffers to theirs. Of what
    follows, it is the median of the last third over that of the first.
    """
    warm = [mb for published, mb in samples if published > rows / 4] or [mb for _, mb in samples]
    third = max(len(warm) // 3, 1)
    return statistics.median(warm[-third:]) / statistics.median(warm[:third])


async def drain(connection: asyncpg.Connection, place: Place, rows: int, script: str) -> Drain:
    await common.empty(connection)
    await common.load(connection, rows, script=script)
    before = await _updates(connection, 0)
    result = await processes.relay(place.dsn, rows, timeout=1800.0)
    after = await _updates(connection, before[0] + 2 * rows)
    memory: list[tuple[int, float]] = result["memory"]
    # A completion changes an indexed column and is never HOT, so every HOT update is a claim.
    hot = (after[1] - before[1]) / rows * 100
    return Drain(rows / result["seconds"], result["peak"], growth(memory, rows), hot, memory)


async def _updates(connection: asyncpg.Connection, at_least: int) -> tuple[int, int]:
    """Updates and HOT updates of the table so far; the server counts a session's when it ends, so wait for them."""
    deadline = time.monotonic() + 10
    while True:
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        found = await connection.fetchrow(common.sql("updates.sql"))
        assert found is not None
        if found[0] >= at_least or time.monotonic() > deadline:
            return found[0], found[1]
        await asyncio.sleep(0.1)


async def measure(place: Place, size: Size) -> Section:
    arms = {
        "short": (size.short_rows, "load.sql"),
        "rows": (size.rows, "load.sql"),
        "large": (size.large_rows, "load_large.sql"),
    }
    found: dict[str, list[Drain]] = {name: [] for name in arms}
    async with common.database(place) as connection:
        for number in range(size.repeats):
            for name in rotated(list(arms), number):
                each = await drain(connection, place, *arms[name])
                found[name].append(each)
                shown = f"{each.rate:,.0f} rows/s, {each.peak:.1f} MB, growth {each.growth:.3f}"
                print(f"round {number + 1}: {name}: {shown}", file=sys.stderr)
    text = f"{size.rows:,} rows"
    short, many = ([each.rate for each in found[name]] for name in ("short", "rows"))
    hot = [each.hot for each in found["rows"]]
    figures = [
        ratio("drain_growth", f"pace of {text} / of {size.short_rows:,}", many, short),
        figure(
            "hot_percent",
            f"HOT share of claims, {text}",
            hot,
            unit="%",
            at_least=HOT_BAR_PERCENT,
            valid=size.rows >= HOT_ROWS,
        ),
    ]
    bodies = f"{size.large_rows:,} bodies of 512 KiB"
    figures.append(
        figure("large_rate", f"pace of {bodies}", [each.rate for each in found["large"]], unit="rows/s")
    )
    for name, what, enough in (
        ("rows", text, size.rows >= MEMORY_ROWS),
        ("large", bodies, size.large_rows >= MEMORY_LARGE_ROWS),
    ):
        peaks, grew = ([getattr(each, which) for each in found[name]] for which in ("peak", "growth"))
        figures += [
            figure(
                f"memory_{name}_mb",
                f"memory, {what}",
                peaks,
                unit="MB",
                at_most=MEMORY_BAR_MB,
                valid=enough,
            ),
            figure(
                f"memory_{name}_growth",
                f"memory, {what}, at the end / once warm",
                grew,
                at_most=GROWTH_BAR,
                valid=enough,
            ),
        ]
    notes = (
        f"Rounds: {size.repeats}, the relay on {event_loop()[1]} with its defaults, to a dispatcher that does nothing.",
        "Memory is the highest of the relay's process, from its start to its end.",
        "Growth: a quarter of the rows warms up; of the rest, the median of the last third over that of the first.",
    )
    memory = {name: [_thinned(each.memory) for each in found[name]] for name in ("rows", "large")}
    return Section("long drain", figures, notes, {"memory_mb_by_rows": memory})


def _thinned(samples: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return samples[:: len(samples) // 40 + 1]


def bars(_: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    memory = {f"memory_{name}_{what}" for name in ("rows", "large") for what in ("mb", "growth")}
    return frozenset({*memory, "hot_percent"})


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(running.main(__doc__, "long_drain"))
