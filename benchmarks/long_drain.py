"""A backlog of a million rows, and one of large bodies: a relay's memory, pace and HOT updates.

    python -m benchmarks.long_drain [--dsn DSN] [--quick | --smoke] [--json FILE]

The dispatcher does nothing. The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from dataclasses import dataclass

import asyncpg

from benchmarks import common, processes
from benchmarks.children import event_loop
from benchmarks.common import Mode, Place
from benchmarks.figures import Section, figure

MEMORY_BAR_MB, GROWTH_BAR, HOT_BAR_PERCENT = 150.0, 1.1, 95.0


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    short_rows: int
    rows: int
    large_rows: int


SIZES = {
    Mode.SMOKE: Size(1_000, 3_000, 8),
    Mode.QUICK: Size(10_000, 100_000, 60),
    Mode.FULL: Size(10_000, 1_000_000, 400),
}


@dataclass(frozen=True)
class Drain:
    """What one drain showed. Memory is resident, in MB."""

    rate: float
    peak: float
    growth: float
    """The median memory of the last quarter of the time over that of the one before: 1 is flat."""
    hot: float
    """Of the claims, how many percent rewrote the row in place."""


async def drain(connection: asyncpg.Connection, place: Place, rows: int, script: str) -> Drain:
    await common.empty(connection)
    await common.load(connection, rows, script=script)
    before = await _updates(connection, 0)
    result, samples = await processes.relay(place.dsn, rows, timeout=1800.0)
    after = await _updates(connection, before[0] + 2 * rows)
    samples = [sample for sample in samples if sample]
    quarter = max(len(samples) // 4, 1)
    growth = statistics.median(samples[-quarter:]) / statistics.median(samples[-2 * quarter : -quarter])
    # A completion changes an indexed column and is never HOT, so every HOT update is a claim.
    return Drain(rows / result["seconds"], max(samples), growth, (after[1] - before[1]) / rows * 100)


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
    connection = await asyncpg.connect(place.dsn)
    try:
        await common.install(connection)
        short = await drain(connection, place, size.short_rows, "load.sql")
        many = await drain(connection, place, size.rows, "load.sql")
        large = await drain(connection, place, size.large_rows, "load_large.sql")
        await common.remove(connection)
    finally:
        await connection.close()
    text = f"{size.rows:,} rows"
    figures = [
        figure("drain_growth", f"pace of {text} / of {size.short_rows:,}", [many.rate / short.rate]),
        figure("hot_percent", f"HOT share of claims, {text}", [many.hot], unit="%", at_least=HOT_BAR_PERCENT),
    ]
    bodies = f"{size.large_rows} bodies of 512 KiB"
    for name, what, found in (("rows", text, many), ("large", bodies, large)):
        figures += [
            figure(f"memory_{name}_mb", f"memory, {what}", [found.peak], unit="MB", at_most=MEMORY_BAR_MB),
            figure(
                f"memory_{name}_growth", f"memory, {what}, last quarter / the one before",
                [found.growth], at_most=GROWTH_BAR,
            ),
        ]  # fmt: skip
    notes = (
        f"One drain each, the relay on {event_loop()[1]} with its defaults, to a dispatcher that does nothing.",
        "Memory is the relay's process, looked at twenty times a second.",
    )
    return Section("long drain", figures, notes)


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, run))
