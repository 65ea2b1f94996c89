"""What a claim costs where claims usually become slow, against the same claim on a clean table a moment before.

    python -m benchmarks.claim_cost [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

Two relays work by turns through steady traffic, a claim taking at most 100 rows: one on a table in a trap, one on a
clean table in a database of its own, for an old snapshot is felt in the whole database. While one works the other's
dispatcher and writer stand still, so that neither pays for the other. Each of their claims is timed, with the look for
what comes before its rows, also those that sweep from the very beginning and those that find nothing. The DSN's
database gets a schema ``outbox_benchmark`` and its server a database ``outbox_benchmark_control``, both dropped at the
end.
"""

from __future__ import annotations

import asyncio
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
from benchmarks.turns import rotated
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.store import BEGINNING, Claim, KeyId, KeyRequest, KeySpan, Leased, Predecessor, View
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName

CONTROL = "outbox_benchmark_control"
BATCH_SIZE = 10
"""Claims grow to ten times as much while there is a backlog."""
WRITE_ROWS, WRITE_EVERY = 500, 0.1
DISPATCH_SECONDS = 0.0125
"""With the default concurrency of 64 that keeps pace with the writer: about 5,000 messages a second."""
ROUNDS = 3
"""In each of which either relay has its turn."""
SETTLING_SECONDS = 0.2
"""Between two turns: what was claimed last is waited for by nobody then."""
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
    """Of all turns of both relays."""
    held_seconds: float
    depth: Depth
    as_deep_as_the_bars: bool = False
    """Whether the traps are what the bars are for; shallower ones say nothing of those."""


SIZES = {
    Mode.SMOKE: Size(0.6, 0.6, Depth({"growth": 12_000}, 1_000, 1_000, 1_000, 1_000)),
    Mode.QUICK: Size(3.6, 3.6, Depth({"growth": 100_000}, 60_000, 60_000, 40_000, 60_000)),
    Mode.FULL: Size(
        24.0,
        90.0,
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
    """One claim: how long it took, and whether it read from the beginning."""

    ms: float
    sweep: bool


class TimedStore(PostgresStore):
    """Notes how long each claim of the relay took, and whether it swept."""

    def __init__(self, dsn: str, **connect: Any) -> None:
        super().__init__(dsn, connect=connect)
        self.claims: list[Timed] = []

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        began = time.perf_counter()
        leased = await super().claim(table, claim)
        if claim.limit > 0:
            self._note(began, sweep=claim.since == BEGINNING)
        return leased

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        began = time.perf_counter()
        leased = await super().claim_keys(table, claim, keys)
        self._note(began, sweep=False)
        return leased

    async def predecessors(
        self, table: TableName, spans: Sequence[KeySpan], view: View
    ) -> dict[KeyId, Predecessor]:
        began = time.perf_counter()
        found = await super().predecessors(table, spans, view)
        if self.claims:  # the look belongs to the claim before it, which did not look itself
            took = self.claims[-1].ms + (time.perf_counter() - began) * 1000
            self.claims[-1] = replace(self.claims[-1], ms=took)
        return found

    def _note(self, began: float, *, sweep: bool) -> None:
        self.claims.append(Timed((time.perf_counter() - began) * 1000, sweep))


class Side:
    """A relay on one of the two tables, and whether it is its turn."""

    def __init__(self, store: TimedStore) -> None:
        self.store = store
        self.its_turn = asyncio.Event()
        self._begun = False

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        await self.its_turn.wait()
        await asyncio.sleep(DISPATCH_SECONDS)
        if message.meta.key == BLOCKED:
            raise RuntimeError("this key is blocked")

    async def turn(self, seconds: float) -> list[Timed]:
        """The claims of one turn; of the first with those from the relay's start on."""
        first = len(self.store.claims) if self._begun else 0
        self._begun = True
        self.its_turn.set()
        await asyncio.sleep(seconds)
        self.its_turn.clear()
        claims = self.store.claims[first:]
        await asyncio.sleep(SETTLING_SECONDS)
        return claims


@asynccontextmanager
async def traffic(dsn: str, keys: int, **connect: Any) -> AsyncIterator[Side]:
    """A writer that commits a batch of messages ten times a second, and a relay that delivers them, by turns."""
    connection = await asyncpg.connect(dsn, **connect)
    side = Side(TimedStore(dsn, **connect))

    async def write() -> None:
        while True:
            await side.its_turn.wait()
            began = time.monotonic()
            await common.insert(connection, WRITE_ROWS, keys=keys)
            await asyncio.sleep(max(began + WRITE_EVERY - time.monotonic(), 0.0))

    relay = Relay(lambda: side.store, table=TABLE, dispatcher=side, batch_size=BATCH_SIZE, backoff_base=60.0)
    task = asyncio.create_task(write())
    try:
        async with relay:
            yield side
            await relay.stop(0.3)  # what waits out its backoff is not waited for
    finally:
        task.cancel()
        await asyncio.wait({task})
        await connection.close()


@dataclass(frozen=True)
class Pair:
    """The claims in the trap and those on the clean table, of each round."""

    rounds: Sequence[tuple[list[Timed], list[Timed]]]

    @property
    def trapped(self) -> list[Timed]:
        return [claim for ours, _ in self.rounds for claim in ours]

    @property
    def clean(self) -> list[Timed]:
        return [claim for _, theirs in self.rounds for claim in theirs]

    @property
    def enough(self) -> bool:
        return min(len(self.trapped), len(self.clean)) >= FEWEST_CLAIMS

    def figures(self, name: str, trap: Trap, *, judged: bool) -> list[Figure]:
        """Values are of all claims together, spreads those of the rounds."""
        figures: list[Figure] = []
        trapped, clean = ([claim.ms for claim in claims] for claims in (self.trapped, self.clean))
        rounds = [
            tuple([claim.ms for claim in claims] for claims in both) for both in self.rounds if all(both)
        ]
        for kind, of in MEASURES.items():
            each = [(of(ours), of(theirs)) for ours, theirs in rounds]
            ours, theirs = of(trapped), of(clean)
            figures += [
                _pooled(
                    f"claim_{kind}_ratio_{name}", f"{trap.text}, {kind} / clean", ours / theirs,
                    [one / other for one, other in each], at_most=trap.bar, valid=judged and self.enough,
                ),
                _pooled(f"claim_{kind}_ms_{name}", f"{trap.text}, {kind}", ours, [one for one, _ in each], unit="ms"),
                _pooled(
                    f"claim_{kind}_clean_ms_{name}", f"{trap.text}, {kind} on the clean table", theirs,
                    [other for _, other in each], unit="ms",
                ),
            ]  # fmt: skip
        slowest = [max(ours) for ours, _ in rounds]
        figures.append(
            _pooled(f"claim_slowest_ms_{name}", f"{trap.text}, slowest", max(trapped), slowest, unit="ms")
        )
        sweeps, others = (
            [claim.ms for claim in claims if claim.sweep] for claims in (self.trapped, self.clean)
        )
        if sweeps:
            figures.append(figure(f"claim_sweep_ms_{name}", f"{trap.text}, a sweep", sweeps, unit="ms"))
        if others:
            figures.append(
                figure(
                    f"claim_sweep_clean_ms_{name}",
                    f"{trap.text}, a sweep on the clean table",
                    others,
                    unit="ms",
                )
            )
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


async def by_turns(place: Place, seconds: float, keys: int) -> Pair:
    rounds: list[tuple[list[Timed], list[Timed]]] = []
    async with (
        traffic(place.dsn, keys) as trapped,
        traffic(place.dsn, keys, database=CONTROL) as control,
    ):
        for number in range(ROUNDS):
            found = {
                side: await side.turn(seconds / ROUNDS / 2) for side in rotated([trapped, control], number)
            }
            rounds.append((found[trapped], found[control]))
    return Pair(rounds)


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
                pair = await by_turns(place, seconds, trap.keys)
            found[name] = pair
            print(f"{trap.text}: {pair.details()}", file=sys.stderr)
    pace = f"{WRITE_ROWS / WRITE_EVERY:,.0f} messages a second come and go"
    counts = ", ".join(f"{name} {len(pair.trapped)}/{len(pair.clean)}" for name, pair in found.items())
    notes = [
        f"{size.seconds:g} s a trap, rounds: {ROUNDS}, in each a turn for either table; all on {event_loop()[1]}.",
        f"Claims of up to {BATCH_SIZE * 10} rows; on each table {pace}.",
        "Values are of all claims of a trap together, also the sweeps from the beginning; spreads are the rounds'.",
        "Where sweeps are under a hundredth of the claims p99 steps over them: the mean has them, and the same bar.",
        "The slowest claim, and sweeps by themselves on either table, stand beside, without a bar.",
        "A sweep comes past all that a trap has, and is the rarer the longer it takes.",
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
