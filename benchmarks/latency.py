"""How soon a committed message reaches the dispatcher of an idle relay, and what being idle costs.

    python -m benchmarks.latency [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

The writer is a process of its own; the time runs from its COMMIT's return to the dispatcher's call in this process, on
the clock both share. The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from benchmarks import common, processes, running
from benchmarks.catalogue import Mode
from benchmarks.children import TABLE, event_loop
from benchmarks.common import Place
from benchmarks.figures import Figure, Section, figure, percentile
from benchmarks.turns import rotated
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay

BARS_MS = {0.5: 3.0, 0.95: 10.0}
"""Of p50 and p95, at the rates that are judged."""
LATE_BAR_MS = 1000.0
LATE_OPEN_SECONDS = 30.0
"""Of a transaction open for less, nothing is judged."""
LATE_BATCH, LATE_EVERY = 100, 0.02
"""What others commit while it is open: 5,000 messages a second, which lie between its place and the relay's."""
JUDGED = (100, 1000)
"""Messages a second at which p50 and p95 have bars, and mixed traffic is measured; the other rates are reported."""
TOGETHER = {5000: 10}
"""Messages in a transaction, where that is more than one: at this rate, single ones are more than a writer commits."""
LEAST_PACE = 0.95
"""Of the messages a second that were meant: with fewer, it is a lighter load that was measured, and no bar is met by
it. It may be missed."""
EARLY_PERCENT = 10.0
"""Of messages with a negative latency: with more, the writer's clock readings are late and nothing is judged."""


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    repeats: int
    beside: int
    """Rounds of what has no bar."""
    rates: tuple[int, ...]
    seconds: float
    idle_seconds: float
    """Of each of as many looks at an idle relay as there are rounds."""
    open_seconds: float


SIZES = {
    Mode.SMOKE: Size(1, 1, (100, 1000), 0.3, 0.5, 0.5),
    Mode.QUICK: Size(3, 1, (10, 100, 1000, 5000), 1.0, 1.2, 1.0),
    Mode.FULL: Size(3, 3, (10, 100, 1000, 5000), 6.0, 5.0, 30.0),
}


class Arrivals:
    """A dispatcher that notes when it was called."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._called = asyncio.Event()

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.times.setdefault(str(message.meta.event_id), time.monotonic())
        self._called.set()

    async def of(self, names: Collection[str]) -> None:
        """Wait until all of these have arrived, 30 s at most."""
        async with asyncio.timeout(30):
            while not self.times.keys() >= set(names):
                self._called.clear()
                await self._called.wait()


class CountingConnection(asyncpg.Connection):
    """Counts the statements that a relay sends on its own account."""

    sent = 0

    async def fetch(self, *arguments: Any, **options: Any) -> Any:
        CountingConnection.sent += 1
        return await super().fetch(*arguments, **options)

    async def execute(self, *arguments: Any, **options: Any) -> Any:
        CountingConnection.sent += 1
        return await super().execute(*arguments, **options)


@dataclass(frozen=True)
class Stretch:
    """Milliseconds from commit to dispatcher, one for each committed message, and how many were committed a second.

    Negative where the relay was quicker than the writer noticed its own commit.
    """

    milliseconds: list[float]
    pace: float


async def latencies(place: Place, rate: int, seconds: float, *, mixed: bool) -> Stretch:
    """What one writer, which commits so many messages a second, has to wait for."""
    arrivals = Arrivals()
    async with Relay(place.dsn, table=TABLE, dispatcher=arrivals):
        order = {"dsn": place.dsn, "rate": rate, "together": TOGETHER.get(rate, 1)}
        order |= {"seconds": seconds, "mixed": mixed, "timeout": 10 * seconds}
        commits: Mapping[str, float] = await processes.child("benchmarks.writer_process", order)
        await arrivals.of(commits)
    extra = arrivals.times.keys() - commits.keys()
    if extra:
        raise RuntimeError(f"{len(extra)} messages of rolled back transactions were dispatched")
    moments = sorted(commits.values())
    lasted = max(moments[-1] - moments[0], 1 / rate)
    return Stretch(
        [(arrivals.times[name] - at) * 1000 for name, at in commits.items()], (len(moments) - 1) / lasted
    )


async def idle(place: Place, seconds: float, looks: int) -> list[tuple[float, float]]:
    """Statements a second, and percent of a core, of a relay that has nothing to do, each time one looks."""
    connect = {"connection_class": CountingConnection}
    found: list[tuple[float, float]] = []
    async with Relay(place.dsn, table=TABLE, dispatcher=Arrivals(), connect=connect):
        await asyncio.sleep(2.0)
        for _ in range(looks):
            sent, cpu, began = CountingConnection.sent, time.process_time(), time.monotonic()
            await asyncio.sleep(seconds)
            elapsed = time.monotonic() - began
            statements = (CountingConnection.sent - sent) / elapsed
            found.append((statements, (time.process_time() - cpu) / elapsed * 100))
    return found


async def late_commit(place: Place, open_seconds: float) -> float:
    """Milliseconds from the commit of a transaction that was open for so long, others being committed meanwhile."""
    arrivals, outbox = Arrivals(), Outbox(TABLE)
    old, young = await asyncpg.connect(place.dsn), await asyncpg.connect(place.dsn)
    try:
        async with Relay(place.dsn, table=TABLE, dispatcher=arrivals):
            late = Message("shop.order.placed.v1", {"late": True})
            async with old.transaction():
                await outbox.enqueue(old, late)
                end = time.monotonic() + open_seconds
                while time.monotonic() < end:
                    due = time.monotonic() + LATE_EVERY
                    batch = [Message("shop.order.placed.v1", {"late": False}) for _ in range(LATE_BATCH)]
                    async with young.transaction():
                        await outbox.enqueue_many(young, batch)
                    await asyncio.sleep(max(due - time.monotonic(), 0.0))
            committed = time.monotonic()
            await arrivals.of([str(late.event_id)])
            return (arrivals.times[str(late.event_id)] - committed) * 1000
    finally:
        await old.close()
        await young.close()


def arms(size: Size, number: int) -> list[tuple[int, bool]]:
    """Rates, plain and mixed, of the round of this number."""
    judged = [(rate, False) for rate in size.rates if rate in JUDGED]
    beside = [(rate, False) for rate in size.rates if rate not in JUDGED]
    beside += [(rate, True) for rate in size.rates if rate in JUDGED]
    return rotated(judged + beside if number < size.beside else judged, number)


async def measure(place: Place, size: Size) -> Section:
    found: dict[tuple[int, bool], list[Stretch]] = {}
    late: list[float] = []
    async with common.database(place) as connection:
        for number in range(size.repeats):
            for rate, mixed in arms(size, number):
                await common.empty(connection)
                each = await latencies(place, rate, size.seconds, mixed=mixed)
                found.setdefault((rate, mixed), []).append(each)
                shown = ", ".join(
                    f"p{share * 100:g} {percentile(each.milliseconds, share):.1f}" for share in (0.5, 0.95)
                )
                what = f"{rate}/s{', mixed' * mixed}, {each.pace:.0f}/s committed"
                print(f"round {number + 1}: {what}: {shown} ms", file=sys.stderr)
            late.append(await late_commit(place, size.open_seconds))
        figures = [line for key in sorted(found) for line in _percentiles(*key, found[key])]
        await common.empty(connection)
        looks = await idle(place, size.idle_seconds, size.repeats)
    text = f"transaction open for {size.open_seconds:g} s, commit to dispatcher"
    figures += [
        figure(
            "late_commit_ms",
            text,
            late,
            unit="ms",
            at_most=LATE_BAR_MS,
            valid=size.open_seconds >= LATE_OPEN_SECONDS,
        ),
        figure(
            "idle_statements_per_s",
            "idle relay, statements a second",
            [statements for statements, _ in looks],
            unit="",
            at_most=4.0,
        ),
        figure("idle_cpu_percent", "idle relay, of a core", [cpu for _, cpu in looks], unit="%", at_most=1.0),
    ]
    loop = event_loop()[1]
    notes = (
        f"{size.seconds:g} s a round, rounds: {size.repeats}, without a bar {size.beside}; relay and writer on {loop}.",
        "Mixed: 10 % of the transactions stay open for 200 ms, 10 % are rolled back.",
        f"A transaction has one message{_several(size.rates)}.",
        "What a writer cannot commit in time is committed late; the clock runs from its commit.",
        f"Below {LEAST_PACE:.0%} of the rate that was meant no bar is met; one that is missed even so is missed.",
        f"While a transaction is open for long, others commit {LATE_BATCH / LATE_EVERY:,.0f} messages a second.",
    )
    return Section("commit to dispatcher", figures, notes)


def _several(rates: Collection[int]) -> str:
    return "".join(f", at {rate}/s {TOGETHER[rate]}" for rate in rates if rate in TOGETHER)


def _percentiles(rate: int, mixed: bool, rounds: list[Stretch]) -> list[Figure]:
    """The mixed figures stand beside, without a bar: the long transactions' own waiting is not the relay's.

    A writer too busy to stamp its commits in time makes the relay look quicker than it is: then nothing is judged.
    """
    suffix, text = ("_mixed", " with long and rolled back transactions") if mixed else ("", "")
    early = [sum(value < 0 for value in each.milliseconds) / len(each.milliseconds) * 100 for each in rounds]
    paces = [each.pace for each in rounds]
    meant = rate * (0.9 if mixed else 1.0)
    on_time = max(early) <= EARLY_PERCENT
    kept = min(paces) >= LEAST_PACE * meant

    def judged(share: float) -> Figure:
        values = [percentile(each.milliseconds, share) for each in rounds]
        bar = BARS_MS.get(share) if rate in JUDGED and not mixed else None
        name, shown = f"latency_p{share * 100:.0f}_ms_{rate}{suffix}", f"{rate}/s{text}, p{share * 100:.0f}"
        found = figure(name, shown, values, unit="ms", at_most=bar)
        return replace(found, valid=on_time and (kept or (bar is not None and found.value > bar)))

    return [
        figure(f"latency_pace_{rate}{suffix}", f"{rate}/s{text}, committed a second", paces, unit="/s"),
        figure(
            f"latency_early_percent_{rate}{suffix}",
            f"{rate}/s{text}, dispatched before the writer noticed its commit",
            early,
            unit="%",
        ),
    ] + [judged(share) for share in (0.5, 0.95, 0.99)]


def bars(mode: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    judged = {
        f"latency_p{share * 100:.0f}_ms_{rate}"
        for rate in SIZES[mode].rates
        if rate in JUDGED
        for share in BARS_MS
    }
    return frozenset({*judged, "late_commit_ms", "idle_statements_per_s", "idle_cpu_percent"})


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(running.main(__doc__, "latency"))
