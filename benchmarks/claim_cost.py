"""What a claim costs where claims usually become slow, against the same claim on a clean table.

    python -m benchmarks.claim_cost [--dsn DSN] [--quick | --smoke] [--json FILE]

In every stage a relay works through steady traffic, a claim taking at most 100 rows; each of its claims is timed, also
those that sweep from the very beginning and those that find nothing. Then the trap is set and the same is timed again.
The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass

import asyncpg

from benchmarks import common
from benchmarks.children import TABLE, event_loop
from benchmarks.common import Mode, Place
from benchmarks.figures import Figure, Section, figure, percentile, ratio
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.store import BEGINNING, Claim, Row
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName

BACKLOG = 10_000
BLOCKED = "order-0"
BATCH_SIZE = 10
"""Claims grow to ten times as much while there is a backlog."""
WRITE_ROWS, WRITE_EVERY = 500, 0.1
DISPATCH_SECONDS = 0.0125
"""With the default concurrency of 64 that keeps pace with the writer: about 5,000 messages a second."""


@dataclass(frozen=True)
class Size:
    """How long a run is and how deep the traps are."""

    repeats: int
    seconds: float
    backlogs: dict[str, int]
    drained: int
    under_snapshot: int
    held_seconds: float
    blocked: int
    not_due: int


SIZES = {
    Mode.SMOKE: Size(1, 0.4, {"growth": 12_000}, 1_000, 1_000, 0.4, 1_000, 1_000),
    Mode.QUICK: Size(1, 2.5, {"growth": 200_000}, 60_000, 60_000, 2.5, 40_000, 60_000),
    Mode.FULL: Size(
        3, 15.0, {"growth": 2_000_000, "growth_5m": 5_000_000}, 300_000, 200_000, 600.0, 100_000, 300_000
    ),
}

Trap = Callable[[asyncpg.Connection, Place, Size, AsyncExitStack], Awaitable[float]]
"""Sets a trap, to be undone by the stack; returns for how many seconds to measure."""


class TimedStore(PostgresStore):
    """Notes how long each claim of the relay took, and whether it swept."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.claims: list[tuple[float, bool]] = []

    async def claim(self, table: TableName, claim: Claim) -> list[Row]:
        began = time.perf_counter()
        rows = await super().claim(table, claim)
        if claim.limit > 0:
            self.claims.append((time.perf_counter() - began, claim.since == BEGINNING))
        return rows


@dataclass(frozen=True)
class Cost:
    """Milliseconds a claim, over one stage."""

    p50: float
    p99: float
    sweeps: int
    claims: int


async def _dispatch(message: DispatchedMessage) -> None:
    await asyncio.sleep(DISPATCH_SECONDS)
    if message.meta.key == BLOCKED:
        raise RuntimeError("this key is blocked")


@asynccontextmanager
async def traffic(place: Place) -> AsyncIterator[None]:
    """A writer that commits a batch of messages ten times a second."""
    connection = await asyncpg.connect(place.dsn)

    async def write() -> None:
        while True:
            began = time.monotonic()
            await common.insert(connection, WRITE_ROWS)
            await asyncio.sleep(max(began + WRITE_EVERY - time.monotonic(), 0.0))

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        await connection.close()


async def cost(place: Place, seconds: float) -> Cost:
    store = TimedStore(place.dsn)
    relay = Relay(lambda: store, table=TABLE, dispatcher=_dispatch, batch_size=BATCH_SIZE, backoff_base=60.0)
    async with traffic(place), relay:
        await asyncio.sleep(seconds)
        claims = list(store.claims)
        await relay.stop(1.0)  # what waits out its backoff is not waited for
    times = [took * 1000 for took, _ in claims]
    sweeps = sum(swept for _, swept in claims)
    return Cost(percentile(times, 0.5), percentile(times, 0.99), sweeps, len(claims))


def deep(rows: int) -> Trap:
    """A backlog of so many rows, the clean table's among them."""

    async def trap(
        connection: asyncpg.Connection, _place: Place, size: Size, _stack: AsyncExitStack
    ) -> float:
        await common.load(connection, rows - BACKLOG)
        return size.seconds

    return trap


async def drained(connection: asyncpg.Connection, _place: Place, size: Size, _stack: AsyncExitStack) -> float:
    await _publish_before(connection, size.drained)
    return size.seconds


async def snapshot(connection: asyncpg.Connection, place: Place, size: Size, stack: AsyncExitStack) -> float:
    holder = await asyncpg.connect(place.dsn)
    stack.push_async_callback(holder.close)
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetchval("SELECT pg_current_snapshot()::text")
    await _publish_before(connection, size.under_snapshot)
    return size.held_seconds


async def blocked(connection: asyncpg.Connection, _place: Place, size: Size, _stack: AsyncExitStack) -> float:
    await common.load(connection, size.blocked, keys=1)
    return size.seconds


async def not_due(connection: asyncpg.Connection, _place: Place, size: Size, _stack: AsyncExitStack) -> float:
    await common.load(connection, size.not_due, due_in=3600.0)
    return size.seconds


async def _publish_before(connection: asyncpg.Connection, rows: int) -> None:
    """So many rows at the head of the queue, published and not vacuumed; the backlog comes after them."""
    await connection.execute(f"ALTER TABLE {TABLE.quoted} SET (autovacuum_enabled = off)")
    await common.empty(connection)
    await common.insert(connection, rows)
    await connection.execute(common.sql("publish_all.sql"), timeout=600)
    await common.insert(connection, BACKLOG)
    await connection.execute("CHECKPOINT", timeout=600)


def traps(size: Size) -> dict[str, tuple[Trap, str, float]]:
    return {
        **{
            name: (deep(rows), f"{rows:,} pending against {BACKLOG:,}", 1.5)
            for name, rows in size.backlogs.items()
        },
        "drained": (drained, f"after {size.drained:,} drained, no vacuum", 3.0),
        "snapshot": (
            snapshot,
            f"snapshot held for {size.held_seconds:g} s, {size.under_snapshot:,} drained meanwhile",
            3.0,
        ),
        "blocked": (blocked, f"behind {size.blocked:,} rows of one blocked key", 3.0),
        "not_due": (not_due, f"behind {size.not_due:,} rows not yet due", 3.0),
    }


async def stage(connection: asyncpg.Connection, place: Place, size: Size, trap: Trap) -> tuple[Cost, Cost]:
    """The clean table, then the trap, one right after the other."""
    await common.install(connection)
    await common.load(connection, BACKLOG)
    clean = await cost(place, size.seconds)
    async with AsyncExitStack() as stack:
        seconds = await trap(connection, place, size, stack)
        return clean, await cost(place, seconds)


async def measure(place: Place, size: Size) -> Section:
    connection = await asyncpg.connect(place.dsn)
    found: dict[str, list[tuple[Cost, Cost]]] = {}
    try:
        for number in range(size.repeats):
            for name, (trap, text, _) in traps(size).items():
                pair = await stage(connection, place, size, trap)
                found.setdefault(name, []).append(pair)
                print(f"round {number + 1}: {text}: clean {pair[0]}, trap {pair[1]}", file=sys.stderr)
        await common.remove(connection)
    finally:
        await connection.close()
    figures: list[Figure] = []
    for name, (_, text, bar) in traps(size).items():
        clean, trapped = zip(*found[name], strict=True)
        for share in ("p50", "p99"):
            ours, theirs = ([getattr(each, share) for each in costs] for costs in (trapped, clean))
            figures += [
                figure(f"claim_{share}_ms_{name}", f"{text}, {share}", ours, unit="ms"),
                ratio(f"claim_{share}_ratio_{name}", f"{text}, {share} / clean", ours, theirs, at_most=bar),
            ]
    notes = (
        f"Rounds: {size.repeats}, {size.seconds:g} s a stage, on {event_loop()[1]}.",
        f"Claims of up to {BATCH_SIZE * 10} rows; {WRITE_ROWS / WRITE_EVERY:,.0f} messages a second come and go.",
        "Every claim counts, also the sweeps from the beginning.",
    )
    stages = {name: [[asdict(each) for each in pair] for pair in pairs] for name, pairs in found.items()}
    return Section("claim", figures, notes, {"stages": stages})


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, run))
