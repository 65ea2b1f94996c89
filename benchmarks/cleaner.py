"""What a big clean-up costs those who enqueue and claim meanwhile, and how fast it goes.

    python -m benchmarks.cleaner [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

Published messages, in a full run a million of them in three rounds, are deleted by a cleaner in a process of its own,
with its default settings, while writers enqueue at a steady pace and a relay delivers what they write. The same is
measured before and after it, without a cleaner. The DSN's database gets a schema ``outbox_benchmark``, dropped at the
end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from benchmarks import common, processes, running
from benchmarks.catalogue import Mode
from benchmarks.children import TABLE
from benchmarks.claim_cost import Timed, TimedStore
from benchmarks.common import Place
from benchmarks.figures import Figure, Section, figure, percentile, ratio
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay

WRITERS = 4
PACE_SECONDS = 0.02
TEN_DAYS = 10 * 86400.0


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    rows: int
    quiet_seconds: float
    settle_seconds: float
    snapshot_rows: int
    repeats: int


SIZES = {
    Mode.SMOKE: Size(3_000, 0.3, 0.2, 3_000, 1),
    Mode.QUICK: Size(20_000, 0.6, 0.2, 10_000, 3),
    Mode.FULL: Size(350_000, 8.0, 2.0, 100_000, 3),
}


@dataclass
class Waits:
    """How long each enqueue (transaction included) took, in milliseconds, and each claim."""

    enqueue: list[float] = field(default_factory=list[float])
    claims: list[Timed] = field(default_factory=list[Timed])

    @property
    def claim(self) -> list[float]:
        """Milliseconds."""
        return [each.ms for each in self.claims]


class Traffic:
    """Writers at a steady pace and a relay; what they wait for is noted under the present phase."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._outbox = Outbox(TABLE)
        self.store = TimedStore(dsn)
        """Has a clock of its own: an event loop's may tick in whole milliseconds, and most claims are shorter."""
        self.begin()

    async def __aenter__(self) -> Traffic:
        self._relay = Relay(lambda: self.store, table=TABLE, dispatcher=_acknowledge, cleaner=None)
        await self._relay.start()
        self._tasks = [asyncio.create_task(self._write()) for _ in range(WRITERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._relay.stop()

    def begin(self) -> Waits:
        """A new phase: its waits from now on."""
        self.waits = Waits()
        self.store.claims = self.waits.claims
        return self.waits

    async def _write(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            due = time.perf_counter()
            while True:
                due = max(due + PACE_SECONDS, time.perf_counter())
                await asyncio.sleep(due - time.perf_counter())
                began = time.perf_counter()
                async with connection.transaction():
                    await self._outbox.enqueue(connection, Message("shop.order.placed.v1", {"order": 1}))
                self.waits.enqueue.append((time.perf_counter() - began) * 1000)
        finally:
            connection.terminate()


async def _acknowledge(message: DispatchedMessage) -> None:
    """A destination that acknowledges everything."""


async def clean(dsn: str) -> dict[str, Any]:
    result: dict[str, Any] = await processes.child(
        "benchmarks.cleaner_process", {"dsn": dsn, "timeout": 3600.0}
    )
    return result


async def load(connection: asyncpg.Connection, rows: int) -> None:
    await common.empty(connection)
    statement = common.with_uuids(connection, common.sql("load_published.sql"))
    await connection.execute(statement, rows, TEN_DAYS, timeout=1800)
    await common.settle(connection)


@dataclass(frozen=True)
class Cleaning:
    """One clean-up under traffic: how fast it went, and what others waited for meanwhile, before and after."""

    rate: float
    batch_p95_ms: float
    during: Waits
    quiet: Waits

    def waits(self, what: str, share: float) -> tuple[float, float]:
        """Milliseconds while cleaning, and without."""
        busy, quiet = (percentile(getattr(waits, what), share) for waits in (self.during, self.quiet))
        return busy, quiet


async def under_traffic(place: Place, connection: asyncpg.Connection, size: Size) -> Cleaning:
    await load(connection, size.rows)
    async with Traffic(place.dsn) as traffic:
        await asyncio.sleep(size.settle_seconds)
        before = traffic.begin()
        await asyncio.sleep(size.quiet_seconds)
        during = traffic.begin()
        result = await clean(place.dsn)
        traffic.begin()
        await asyncio.sleep(size.settle_seconds)
        after = traffic.begin()
        await asyncio.sleep(size.quiet_seconds)
    assert result["rows"] == size.rows, result["rows"]
    batches = [seconds * 1000 for deleted, seconds in result["batches"] if deleted]
    quiet = Waits(before.enqueue + after.enqueue, before.claims + after.claims)
    return Cleaning(result["rows"] / result["seconds"], percentile(batches, 0.95), during, quiet)


async def under_a_snapshot(place: Place, connection: asyncpg.Connection, size: Size) -> float:
    """An old transaction keeps every deleted entry in the index: later batches must not read them all again.

    What a row costs in the last tenth of the batches over the first tenth.
    """
    await load(connection, size.snapshot_rows)
    holder = await asyncpg.connect(place.dsn)
    try:
        async with holder.transaction(isolation="repeatable_read", readonly=True):
            await holder.fetchval("SELECT 1")
            result = await clean(place.dsn)
    finally:
        await holder.close()
    each: list[float] = [seconds / deleted * 1e6 for deleted, seconds in result["batches"] if deleted >= 500]
    tenth = max(1, len(each) // 10)
    return sorted(each[-tenth:])[tenth // 2] / sorted(each[:tenth])[tenth // 2]


async def measure(place: Place, size: Size) -> Section:
    cleanings: list[Cleaning] = []
    growths: list[float] = []
    async with common.database(place) as connection:
        for _ in range(size.repeats):
            cleanings.append(await under_traffic(place, connection, size))
            growths.append(await under_a_snapshot(place, connection, size))
    pace = f"{WRITERS} writers, one message each {PACE_SECONDS * 1000:.0f} ms"
    notes = (
        f"{size.rows:,} published rows of 300 bytes, rounds: {size.repeats}; {pace}; a relay delivers what they write.",
        f"Without: {size.quiet_seconds:g} s before and {size.quiet_seconds:g} s after.",
    )
    text = f"a row, last tenth / first tenth of {size.snapshot_rows:,} under an old snapshot"
    growth = figure("cleaner_snapshot_growth", text, growths, at_most=2.0)
    return Section("cleaner", [*_figures(cleanings), growth], notes)


def _figures(cleanings: list[Cleaning]) -> list[Figure]:
    rates, batches = [each.rate for each in cleanings], [each.batch_p95_ms for each in cleanings]
    figures = [
        figure("cleaner_rows_per_second", "deleted", rates, unit="rows/s"),
        figure("cleaner_batch_ms_p95", "a batch, p95", batches, unit="ms", at_most=100),
    ]
    for what in ("enqueue", "claim"):
        for share in (0.5, 0.95, 0.99):
            name = f"p{share * 100:.0f}"
            busy, quiet = map(list, zip(*(each.waits(what, share) for each in cleanings), strict=True))
            figures += [
                figure(f"cleaner_{what}_{name}_quiet_ms", f"{what} {name} without", quiet, unit="ms"),
                figure(f"cleaner_{what}_{name}_ms", f"{what} {name} while cleaning", busy, unit="ms"),
                ratio(
                    f"cleaner_{what}_{name}_ratio", f"{what} {name}, while cleaning / without", busy, quiet
                ),
            ]
    return figures


def bars(_: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    return frozenset({"cleaner_batch_ms_p95", "cleaner_snapshot_growth"})


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(running.main(__doc__, "cleaner"))
