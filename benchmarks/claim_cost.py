"""What a claim costs where claims usually become slow, against the same claim on a clean table at the same time.

    python -m benchmarks.claim_cost [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

Two relays work side by side through steady traffic, a claim taking at most 100 rows: one on a table in a trap, one on
a clean table in a database of its own, for an old snapshot is felt in the whole database. Each of their claims is
timed, with the look for what comes before its rows, also those that sweep from the very beginning and those that find
nothing. The DSN's database gets a schema ``outbox_benchmark`` and its server a database ``outbox_benchmark_control``,
both dropped at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import asyncpg

from benchmarks import common, running
from benchmarks.catalogue import Mode
from benchmarks.children import TABLE, event_loop
from benchmarks.common import Place
from benchmarks.figures import Figure, Section, figure, percentile
from benchmarks.traps import BLOCKED, Depth, Trap, clean, traps
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.store import BEGINNING, Claim, KeyId, Leased, Predecessor, Span
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName

CONTROL = "outbox_benchmark_control"
BATCH_SIZE = 10
"""Claims grow to ten times as much while there is a backlog."""
WRITE_ROWS, WRITE_EVERY = 500, 0.1
DISPATCH_SECONDS = 0.0125
"""With the default concurrency of 64 that keeps pace with the writer: about 5,000 messages a second."""
ROUNDS = 3
"""Into which the time that a trap is measured for is cut."""
FEWEST_CLAIMS = 300
"""With fewer, of either table, the slowest hundredth is a few claims, and nothing is judged."""
MEASURES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "p50": partial(percentile, share=0.5),
    "p99": partial(percentile, share=0.99),
    "mean": statistics.fmean,
}
"""Of all claims of a table. Where sweeps are under a hundredth of the claims p99 steps over them, the mean does not."""


@dataclass(frozen=True)
class Size:
    """How long a run is and how deep the traps are."""

    seconds: float
    held_seconds: float
    claims: int
    """So many at least of each table, though no longer than three times the seconds are waited for them."""
    depth: Depth
    as_deep_as_the_bars: bool = False
    """Whether the traps are what the bars are for; shallower ones say nothing of those."""


SIZES = {
    Mode.SMOKE: Size(0.4, 0.4, 0, Depth({"growth": 12_000}, 1_000, 1_000, 1_000, 1_000)),
    Mode.QUICK: Size(3.6, 3.6, FEWEST_CLAIMS, Depth({"growth": 100_000}, 60_000, 60_000, 40_000, 60_000)),
    Mode.FULL: Size(
        12.0,
        90.0,
        FEWEST_CLAIMS,
        Depth(
            {"growth": 2_000_000, "growth_5m": 5_000_000},
            300_000,
            200_000,
            100_000,
            300_000,
            aged_seconds=510.0,
        ),
        as_deep_as_the_bars=True,
    ),
}


@dataclass(frozen=True)
class Timed:
    """One claim: when it was sent, on the monotonic clock, how long it took, and whether it read from the beginning."""

    at: float
    ms: float
    sweep: bool


class TimedStore(PostgresStore):
    """Notes how long each claim of the relay took, and whether it swept."""

    def __init__(self, dsn: str, claims: int, **connect: Any) -> None:
        super().__init__(dsn, connect=connect)
        self.claims: list[Timed] = []
        self.enough = asyncio.Event()
        """Set once there are so many claims."""
        self._wanted = claims

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        began = time.perf_counter()
        leased = await super().claim(table, claim)
        if claim.limit > 0:
            self._note(began, sweep=claim.since == BEGINNING)
        return leased

    async def follow(self, table: TableName, claim: Claim, keys: Mapping[KeyId, int]) -> Leased:
        began = time.perf_counter()
        leased = await super().follow(table, claim, keys)
        self._note(began, sweep=False)
        return leased

    async def predecessors(
        self, table: TableName, claim: Claim, spans: Sequence[Span]
    ) -> dict[KeyId, Predecessor]:
        began = time.perf_counter()
        found = await super().predecessors(table, claim, spans)
        if self.claims:  # the look belongs to the claim before it, which did not look itself
            took = self.claims[-1].ms + (time.perf_counter() - began) * 1000
            self.claims[-1] = replace(self.claims[-1], ms=took)
        return found

    def _note(self, began: float, *, sweep: bool) -> None:
        self.claims.append(Timed(began, (time.perf_counter() - began) * 1000, sweep))
        if len(self.claims) >= self._wanted:
            self.enough.set()


async def _dispatch(message: DispatchedMessage) -> None:
    await asyncio.sleep(DISPATCH_SECONDS)
    if message.meta.key == BLOCKED:
        raise RuntimeError("this key is blocked")


@asynccontextmanager
async def traffic(dsn: str, claims: int, keys: int, **connect: Any) -> AsyncIterator[TimedStore]:
    """A writer that commits a batch of messages ten times a second, and a relay that delivers them."""
    connection = await asyncpg.connect(dsn, **connect)

    async def write() -> None:
        while True:
            began = time.monotonic()
            await common.insert(connection, WRITE_ROWS, keys=keys)
            await asyncio.sleep(max(began + WRITE_EVERY - time.monotonic(), 0.0))

    store = TimedStore(dsn, claims, **connect)
    relay = Relay(lambda: store, table=TABLE, dispatcher=_dispatch, batch_size=BATCH_SIZE, backoff_base=60.0)
    task = asyncio.create_task(write())
    try:
        async with relay:
            yield store
            await relay.stop(0.3)  # what waits out its backoff is not waited for
    finally:
        task.cancel()
        await asyncio.wait({task})
        await connection.close()


@dataclass(frozen=True)
class Pair:
    """The claims in the trap and those on the clean table, over the same time."""

    trapped: list[Timed]
    clean: list[Timed]
    began: float
    ended: float

    @property
    def enough(self) -> bool:
        return min(len(self.trapped), len(self.clean)) >= FEWEST_CLAIMS

    def rounds(self) -> list[tuple[list[float], list[float]]]:
        """Milliseconds in the trap and beside it, of each stretch of the time in which both claimed."""
        width = (self.ended - self.began) / ROUNDS
        found = []
        for number in range(ROUNDS):
            # A relay's first claims come while it starts: they belong to the first round.
            first, last = (self.began + at * width if at else 0.0 for at in (number, number + 1))
            pair = tuple(
                [claim.ms for claim in claims if first <= claim.at < last]
                for claims in (self.trapped, self.clean)
            )
            if all(pair):
                found.append((pair[0], pair[1]))
        return found

    def figures(self, name: str, trap: Trap, *, judged: bool) -> list[Figure]:
        """Values are of all claims together, spreads those of the rounds."""
        figures: list[Figure] = []
        trapped, clean = ([claim.ms for claim in claims] for claims in (self.trapped, self.clean))
        for kind, of in MEASURES.items():
            each = [(of(ours), of(theirs)) for ours, theirs in self.rounds()]
            ours, theirs = of(trapped), of(clean)
            figures += [
                _pooled(f"claim_{kind}_ms_{name}", f"{trap.text}, {kind}", ours, [one for one, _ in each], unit="ms"),
                _pooled(
                    f"claim_{kind}_ratio_{name}", f"{trap.text}, {kind} / clean", ours / theirs,
                    [one / other for one, other in each], at_most=trap.bar, valid=judged and self.enough,
                ),
            ]  # fmt: skip
        slowest = [max(ours) for ours, _ in self.rounds()]
        figures.append(
            _pooled(f"claim_slowest_ms_{name}", f"{trap.text}, slowest", max(trapped), slowest, unit="ms")
        )
        sweeps = [claim.ms for claim in self.trapped if claim.sweep]
        if sweeps:
            figures.append(figure(f"claim_sweep_ms_{name}", f"{trap.text}, a sweep", sweeps, unit="ms"))
        return figures

    def details(self) -> dict[str, Any]:
        return {
            kind: {
                "claims": len(claims),
                "sweeps": [round(claim.ms, 2) for claim in claims if claim.sweep],
                "median_ms": round(statistics.median(claim.ms for claim in claims), 3),
            }
            for kind, claims in (("trapped", self.trapped), ("clean", self.clean))
        }


def _pooled(name: str, text: str, value: float, rounds: list[float], **more: Any) -> Figure:
    """A value of all rounds together, which may be none of those between the rounds' own."""
    lowest, highest = min([value, *rounds]), max([value, *rounds])
    return Figure(name, text, value, lowest, highest, rounds=len(rounds), **more)


async def side_by_side(place: Place, seconds: float, claims: int, keys: int) -> Pair:
    async with (
        traffic(place.dsn, claims, keys) as trapped,
        traffic(place.dsn, claims, keys, database=CONTROL) as control,
    ):
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * seconds):
                await trapped.enough.wait()
                await control.enough.wait()
        ended = time.perf_counter()
        pair = [[claim for claim in store.claims if claim.at < ended] for store in (trapped, control)]
    return Pair(pair[0], pair[1], began, ended)


@asynccontextmanager
async def control(place: Place) -> AsyncIterator[asyncpg.Connection]:
    """A database beside the one that is measured, gone at the end of the block."""
    admin = await asyncpg.connect(place.dsn)
    try:
        await admin.execute(f"DROP DATABASE IF EXISTS {CONTROL} WITH (FORCE)")
        await admin.execute(f"CREATE DATABASE {CONTROL}")
        connection = await asyncpg.connect(place.dsn, database=CONTROL)
        try:
            yield connection
        finally:
            await connection.close()
            await admin.execute(f"DROP DATABASE IF EXISTS {CONTROL} WITH (FORCE)")
    finally:
        await admin.close()


async def measure(place: Place, size: Size) -> Section:
    found: dict[str, Pair] = {}
    ways = traps(size.depth, size.held_seconds)
    async with common.database(place) as connection, control(place) as other:
        for name, trap in ways.items():
            await common.install(connection)
            await clean(other, trap.keys)
            async with AsyncExitStack() as stack:
                await trap.set(connection, place, stack)
                seconds = size.held_seconds if trap.held else size.seconds
                pair = await side_by_side(place, seconds, size.claims, trap.keys)
            found[name] = pair
            print(f"{trap.text}: {pair.details()}", file=sys.stderr)
    pace = f"{WRITE_ROWS / WRITE_EVERY:,.0f} messages a second come and go"
    counts = ", ".join(f"{name} {len(pair.trapped)}/{len(pair.clean)}" for name, pair in found.items())
    notes = [
        f"{size.seconds:g} s a trap, cut into {ROUNDS} rounds; relays and writers of both tables on {event_loop()[1]}.",
        f"Claims of up to {BATCH_SIZE * 10} rows; on each table {pace}.",
        "Values are of all claims of a trap together, also the sweeps from the beginning; spreads are the rounds'.",
        "Where sweeps are under a hundredth of the claims p99 steps over them: the mean has them, and the same bar.",
        "The slowest claim stands beside, without a bar.",
        f"Claims in the trap / beside it: {counts}; with fewer than {FEWEST_CLAIMS} nothing is judged.",
    ]
    judged = size.as_deep_as_the_bars
    if not judged:
        notes.append("The traps are shallower than those the bars are for: nothing is judged.")
    figures = [line for name, pair in found.items() for line in pair.figures(name, ways[name], judged=judged)]
    return Section(
        "claim", figures, notes, {"stages": {name: pair.details() for name, pair in found.items()}}
    )


def bars(mode: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    size = SIZES[mode]
    ways = traps(size.depth, size.held_seconds)
    return frozenset(f"claim_{kind}_ratio_{name}" for kind in MEASURES for name in ways)


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(running.main(__doc__, "claim_cost"))
