"""More relays on one table, more tables on one relay: what becomes of the pace, and how many connections they hold.

    python -m benchmarks.scale [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

Relays run in processes of their own and wait when the backlog is committed, in one transaction; the clock runs from
that commit to the last row's ``published_at``. Relays share a table in worker mode, ``single_active=False``; many
tables are led by one. The dispatcher does nothing. The DSN's database gets a schema ``outbox_benchmark``, dropped at
the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg

from benchmarks import common, processes, running
from benchmarks.catalogue import Mode
from benchmarks.children import TABLE, event_loop
from benchmarks.common import Place
from benchmarks.figures import Figure, Section, figure, ratio
from benchmarks.turns import rotated
from outbox_core.table import TableName

POLL_INTERVAL = 0.05
"""Of the relays: a backlog written by hand gives no hint, and the wait for it is none of this benchmark's figures."""
DEADLINE_SECONDS = 600.0
CONNECTIONS_BAR = 5
"""Of one relay, whatever the number of its tables, its session for leadership and hints included."""


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    rows: int
    repeats: int
    relays: tuple[int, ...]
    tables: tuple[int, ...]


SIZES = {
    Mode.SMOKE: Size(1_000, 1, (1, 2), (1, 3)),
    Mode.QUICK: Size(6_000, 3, (1, 4), (1, 10)),
    Mode.FULL: Size(100_000, 3, (1, 2, 4), (1, 10, 50)),
}


@dataclass
class Arm:
    """So many relays on so many tables, and what each round gave."""

    relays: int
    tables: int
    leads: bool
    """The one relay leads its tables; False: relays share the table as workers."""
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Processor time a row in µs, of all relays together."""
    connections: list[float] = field(default_factory=list)
    """Of all relays together, while they work."""


def names(count: int) -> tuple[TableName, ...]:
    return (TABLE, *(TableName(TABLE.schema, f"orders_outbox_{number}") for number in range(1, count)))


@asynccontextmanager
async def relays(place: Place, arm: Arm) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Running relays; whoever is still running at the end of the block is killed."""
    settings: dict[str, Any] = {"poll_interval": POLL_INTERVAL, "single_active": arm.leads}
    order = {"dsn": place.dsn, "tables": [str(name) for name in names(arm.tables)], "settings": settings}
    async with AsyncExitStack() as stack:
        started = [
            await stack.enter_async_context(
                processes.started("benchmarks.scale_process", order, stdin=asyncio.subprocess.PIPE)
            )
            for _ in range(arm.relays)
        ]
        for process in started:
            assert process.stdout is not None
            if await asyncio.wait_for(process.stdout.readline(), 60) != b"ready\n":
                raise RuntimeError("a relay did not start")
        yield started


async def published(connection: asyncpg.Connection, tables: tuple[TableName, ...]) -> tuple[datetime, int]:
    """When the last row was published, waited for, and the most connections that relays had until then."""
    deadline, held = time.monotonic() + DEADLINE_SECONDS, 0
    while time.monotonic() < deadline:
        held = max(held, await connection.fetchval(common.sql("connections.sql")))
        found = [await connection.fetchrow(common.sql("pending.sql", table)) for table in tables]
        if not sum(row[0] for row in found if row is not None):
            last: datetime = max(row[1] for row in found if row is not None)
            return last, held
        await asyncio.sleep(0.2)
    raise TimeoutError(f"not everything was published within {DEADLINE_SECONDS:g} s")


async def one_round(place: Place, connection: asyncpg.Connection, rows: int, arm: Arm) -> None:
    tables = names(arm.tables)
    await common.install(connection, tables)
    async with relays(place, arm) as running:
        async with connection.transaction():
            for table in tables:
                await common.insert(connection, rows // arm.tables, table=table)
        began: datetime = await connection.fetchval("SELECT clock_timestamp()")
        ended, held = await published(connection, tables)
        results = [json.loads((await asyncio.wait_for(p.communicate(b""), 60))[0]) for p in running]
    total = rows // arm.tables * arm.tables
    if sum(each["published"] for each in results) != total:
        raise RuntimeError(
            f"{total} rows, but the relays published {[each['published'] for each in results]}"
        )
    arm.rates.append(total / (ended - began).total_seconds())
    arm.cpu.append(sum(each["cpu"] for each in results) / total * 1e6)
    arm.connections.append(held)


async def measure(place: Place, size: Size) -> Section:
    by_relays = [Arm(count, 1, leads=False) for count in size.relays]
    by_tables = [Arm(1, count, leads=True) for count in size.tables]
    arms = by_relays + by_tables
    async with common.database(place) as connection:
        for number in range(size.repeats):
            for arm in rotated(arms, number):
                await one_round(place, connection, size.rows, arm)
                text = f"relays {arm.relays}, tables {arm.tables}: {arm.rates[-1]:,.0f} rows/s"
                print(f"round {number + 1}: {text}, {arm.connections[-1]} connections", file=sys.stderr)
    notes = (
        f"{size.rows:,} rows of 300 bytes in all, rounds: {size.repeats}, on {event_loop()[1]}.",
        "Workers share one table; a leader has its tables to itself. More relays than idle cores gain nothing.",
    )
    return Section("scale", _figures(by_relays, by_tables), notes)


def _figures(by_relays: list[Arm], by_tables: list[Arm]) -> list[Figure]:
    figures: list[Figure] = []
    for arms, what, noun, bar in (
        (by_relays, "relays", "workers on one table", None),
        (by_tables, "tables", "tables of one leader", CONNECTIONS_BAR),
    ):
        for arm in arms:
            count = getattr(arm, what)
            name, text = f"{what}_{count}", f"{noun}: {count}"
            if arm is not arms[0]:
                figures.append(ratio(f"{name}_vs_1", f"{text} / 1", arm.rates, arms[0].rates))
            figures += [
                figure(f"{name}_rate", text, arm.rates, unit="rows/s"),
                figure(f"{name}_cpu_us_per_row", f"{text}, processor time a row", arm.cpu, unit="µs"),
                figure(f"{name}_connections", f"{text}, connections", arm.connections, unit="", at_most=bar),
            ]
    return figures


def bars(mode: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    return frozenset(f"tables_{count}_connections" for count in SIZES[mode].tables)


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(running.main(__doc__, "scale"))
