"""What a big clean-up costs those who enqueue and claim meanwhile, and how fast it goes.

    python -m benchmarks.cleaner [--dsn DSN] [--quick | --smoke] [--json FILE]

A million published messages are deleted by a cleaner in a process of its own, with its default settings, while writers
enqueue at a steady pace and a relay delivers what they write. The same is measured before and after it, without a
cleaner. The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from benchmarks import common, processes
from benchmarks.children import TABLE
from benchmarks.common import Mode, Place
from benchmarks.figures import Figure, Section, figure, percentile
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Claimed, Event
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


SIZES = {
    Mode.SMOKE: Size(3_000, 0.3, 0.2, 3_000),
    Mode.QUICK: Size(60_000, 3.0, 1.0, 20_000),
    Mode.FULL: Size(1_000_000, 20.0, 2.0, 200_000),
}


@dataclass
class Waits:
    """How long each enqueue (transaction included) and each claim took, in milliseconds."""

    enqueue: list[float] = field(default_factory=list[float])
    claim: list[float] = field(default_factory=list[float])


class Traffic:
    """Writers at a steady pace and a relay; what they wait for is noted under the present phase."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._outbox = Outbox(TABLE)
        self.waits = Waits()

    async def __aenter__(self) -> Traffic:
        self._relay = Relay(
            self._dsn, table=TABLE, dispatcher=_acknowledge, observers=[self._note], cleaner=None
        )
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
        return self.waits

    def _note(self, event: Event) -> None:
        if isinstance(event, Claimed):
            self.waits.claim.append(event.seconds * 1000)

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
    makes_uuid = "uuidv7" if connection.get_server_version().major >= 18 else "gen_random_uuid"
    statement = common.sql("load_published.sql").replace("{uuid}", makes_uuid)
    await connection.execute(statement, rows, TEN_DAYS, timeout=1800)
    await connection.execute(f"VACUUM (ANALYZE) {TABLE.quoted}", timeout=1800)
    await connection.execute("CHECKPOINT", timeout=600)


async def under_traffic(place: Place, connection: asyncpg.Connection, size: Size) -> list[Figure]:
    await load(connection, size.rows)
    async with Traffic(place.dsn) as traffic:
        quiet: list[Waits] = []
        await asyncio.sleep(size.settle_seconds)
        quiet.append(traffic.begin())
        await asyncio.sleep(size.quiet_seconds)
        during = traffic.begin()
        result = await clean(place.dsn)
        traffic.begin()
        await asyncio.sleep(size.settle_seconds)
        quiet.append(traffic.begin())
        await asyncio.sleep(size.quiet_seconds)
    assert result["rows"] == size.rows, result["rows"]
    batches = [seconds * 1000 for deleted, seconds in result["batches"] if deleted]
    figures = [
        figure("cleaner_rows_per_second", "deleted", [result["rows"] / result["seconds"]], unit="rows/s"),
        figure("cleaner_batch_ms_p95", "a batch, p95", [percentile(batches, 0.95)], unit="ms", at_most=100),
    ]
    for what in ("enqueue", "claim"):
        for share in (0.5, 0.95, 0.99):
            name = f"p{share * 100:.0f}"
            without = [percentile(getattr(waits, what), share) for waits in quiet]
            busy = percentile(getattr(during, what), share)
            figures += [
                figure(f"cleaner_{what}_{name}_quiet_ms", f"{what} {name} without", without, unit="ms"),
                figure(f"cleaner_{what}_{name}_ms", f"{what} {name} while cleaning", [busy], unit="ms"),
                figure(
                    f"cleaner_{what}_{name}_ratio", f"{what} {name}, while cleaning / without",
                    [busy / each for each in without],
                ),
            ]  # fmt: skip
    return figures


async def under_a_snapshot(place: Place, connection: asyncpg.Connection, size: Size) -> list[Figure]:
    """An old transaction keeps every deleted entry in the index: later batches must not read them all again."""
    await load(connection, size.snapshot_rows)
    holder = await asyncpg.connect(place.dsn)
    try:
        async with holder.transaction(isolation="repeatable_read", readonly=True):
            await holder.fetchval("SELECT 1")
            result = await clean(place.dsn)
    finally:
        await holder.close()
    each = [seconds / deleted * 1e6 for deleted, seconds in result["batches"] if deleted >= 500]
    tenth = max(1, len(each) // 10)
    first, last = sorted(each[:tenth])[tenth // 2], sorted(each[-tenth:])[tenth // 2]
    text = f"a row, last tenth / first tenth of {size.snapshot_rows:,} under an old snapshot"
    return [figure("cleaner_snapshot_growth", text, [last / first], at_most=2.0)]


async def measure(place: Place, size: Size) -> Section:
    connection = await asyncpg.connect(place.dsn)
    try:
        await common.install(connection)
        figures = [
            *await under_traffic(place, connection, size),
            *await under_a_snapshot(place, connection, size),
        ]
        await common.remove(connection)
    finally:
        await connection.close()
    pace = f"{WRITERS} writers, one message each {PACE_SECONDS * 1000:.0f} ms"
    notes = (
        f"{size.rows:,} published rows of 300 bytes; {pace}; a relay delivers to what acknowledges at once.",
        f"Without: {size.quiet_seconds:g} s before and {size.quiet_seconds:g} s after.",
    )
    return Section("cleaner", figures, notes)


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, run))
