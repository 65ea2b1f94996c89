"""One run from its first message to its verdict."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults import readers, relay_record, repeats, roles, soak
from tests.faults.classify import Committed, Evidence, Seen, Verdict, classify
from tests.faults.journal import NotHit
from tests.faults.nemesis import Deed, lacking, rage
from tests.faults.plan import TABLE, Plan
from tests.faults.recovery import late
from tests.faults.repeats import Broken
from tests.faults.stops import Stop, stops
from tests.faults.trail import Step
from tests.faults.world import EXIT_SECONDS, World, opened
from tests.services.sources import missing_is_failure

CATCH_UP_SECONDS = 45.0
READING_SECONDS = 180.0
"""For each of the readings at the end; and as long again as the run was, for it may have been hours."""
RUN_SECONDS = 3600.0
"""How much longer than its plan says a run may take before it is given up."""
_STATES = f"SELECT event_id, faults_state(published_at, dead_at, lock_token) AS state FROM {TABLE}"  # noqa: S608
TRAIL = "SELECT *, extract(epoch FROM held)::float8 AS held_seconds FROM faults_trail ORDER BY number"


@dataclass(slots=True)
class Result:
    """What a run came to. ``problems`` are failures that are no message's: a process that died, a fault nobody felt."""

    plan: Plan
    began: float
    ended: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)
    deeds: list[Deed] = field(default_factory=list[Deed])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[str] = field(default_factory=list[str])
    late_writes_refused: int = 0
    committed_at: list[float] = field(default_factory=list[float])
    arrived_at: list[float] = field(default_factory=list[float])
    trends: dict[str, soak.Trend] = field(default_factory=dict[str, soak.Trend])
    """Of a run in which nothing was broken."""
    stops: list[Stop] = field(default_factory=list[Stop])
    versions: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def by_kind(self) -> Counter[str]:
        return Counter(deed.kind for deed in self.deeds if deed.hit)

    @property
    def recoveries(self) -> dict[str, float]:
        """The most seconds from the end of a fault until all that have to worked again, by kind; pairs are left out."""
        found: dict[str, float] = {}
        for deed in self.deeds:
            if deed.recovered is not None and not deed.paired:
                found[deed.kind] = max(found.get(deed.kind, 0.0), deed.recovered - deed.healed)
        return found

    @property
    def good(self) -> bool:
        return self.verdict.good and self.verdict.committed > 0 and not self.problems


async def run(
    plan: Plan, kinds: Sequence[str], tell: Callable[[str], None], goals: Mapping[str, int] | None = None
) -> Result:
    """Write, break and deliver; then heal, let everything come to rest, and count. Without kinds: measure instead.

    ``goals`` say how often a kind must be felt at least. What goes wrong with the run itself is one of its problems.
    """
    result = Result(plan, time.monotonic())
    tell(f"run: {plan.name}")
    try:
        async with asyncio.timeout(plan.seconds + RUN_SECONDS):
            await _run(result, kinds, tell, goals or {})
    except Exception as error:
        # The verdicts of other runs, maybe of hours, are not to be lost with this one.
        result.problems.append(f"the run was broken off: {type(error).__name__}: {error}")
    result.ended = result.ended or time.monotonic()
    return result


async def _run(
    result: Result, kinds: Sequence[str], tell: Callable[[str], None], goals: Mapping[str, int]
) -> None:
    def tell_deed(deed: Deed) -> None:
        after, problem = afterwards(deed, result.plan.settings)
        if problem:
            result.problems.append(problem)
        mark = "" if deed.hit else "NOT FELT "
        tell(f"  {deed.began - result.began:6.1f} s  {deed.kind:<22} {mark}{deed.told}; {after}")

    plan = result.plan
    async with opened(plan) as world:
        if silent := (await world.until_working()).silent:
            raise NotHit(silent)
        result.began = time.monotonic()
        result.versions = {server.name: server.version for server in (world.postgres, world.broker)}
        if kinds:
            result.deeds, result.missing = await rage(world, kinds, plan.seconds, tell_deed, goals=goals)
            short = lacking(world, goals, kinds, result.by_kind)
            result.problems += [f"{count} more were wanted: {goal}" for goal, count in short.items()]
        else:
            watched = await soak.watch(world)
            result.trends = soak.trends(watched.samples)
            result.problems += [*watched.wrong, *soak.problems(result.trends, watched.relays)]
        result.problems += [f"{deed.kind}: {deed.told}" for deed in result.deeds if deed.broken_promise]
        result.problems += unfelt(result, kinds)
        await _quiet_end(world, result)
        evidence = await _gather(world, result)
        result.verdict = classify(
            evidence,
            lock_ttl=plan.settings["lock_ttl"],
            stalls=repeats.stalls(time.monotonic() - result.began, calm=plan.calm),
        )
        result.committed_at = [line["at"] for line in evidence.history if line["kind"] == "ok"]
        result.arrived_at = [seen.at for seen in next(iter(evidence.arrived.values()), ())]
        result.ended = time.monotonic()
        if not result.good:
            tell(f"what its processes told is kept in {world.keep_journals()}")


def unfelt(result: Result, kinds: Sequence[str]) -> list[str]:
    """What is a problem of kinds that were to be felt and were not. One that this machine cannot have is none, unless
    everything is required (`missing_is_failure`), or nothing else was felt either: such a run shows nothing."""
    found = [
        f"{kind} was never felt" for kind in kinds if kind not in result.missing and not result.by_kind[kind]
    ]
    if missing_is_failure():
        found += [
            f"{kind} cannot be had here, and OUTBOX_TEST_REQUIRE=all lets nothing be left out: {reason}"
            for kind, reason in result.missing.items()
        ]
    if kinds and not result.by_kind and not found:
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in result.missing.items())
        found.append(f"nothing was broken: none of the kinds can be had here ({reasons})")
    return found


def afterwards(deed: Deed, settings: Mapping[str, Any]) -> tuple[str, str]:
    """What came after a fault, in words, and what of it is a problem; of two at once no time is promised."""
    if deed.recovered is None:
        return f"AFTER THAT {deed.silent}", f"after {deed.kind} {deed.silent}"
    seconds = deed.recovered - deed.healed
    problem = "" if deed.paired else late(deed.kind, seconds, settings)
    return f"working again {seconds:.1f} s later" + ", TOO LATE" * bool(problem), problem


async def _quiet_end(world: World, result: Result) -> None:
    """No more faults and no more writers: whatever is committed must now be delivered, and the relays stop in order."""
    result.problems += world.unplanned_ends()
    codes = await asyncio.gather(*(writer.terminate(EXIT_SECONDS) for writer in world.writers))
    # One that was only just started again has not yet learned to end politely.
    polite = (0, -signal.SIGTERM)
    result.problems += [f"a writer ended with {code}" for code in codes if code not in polite]
    if left := await world.until_delivered():
        result.problems.append(f"{left} messages were still not delivered when everything had been quiet")
    result.problems += [end for end in world.unplanned_ends() if end not in result.problems]
    await world.until_running()
    codes = await asyncio.gather(*(relay.terminate(EXIT_SECONDS) for relay in world.relays))
    result.problems += [f"a relay that was told to stop ended with {code}" for code in codes if code != 0]
    result.stops = stops(world.events.lines())
    result.problems += [str(stop) for stop in result.stops if stop.slow]


async def _gather(world: World, result: Result) -> Evidence:
    within = READING_SECONDS + world.plan.seconds
    async with world.admin() as admin:
        ledger = {
            str(row["event_id"]): Committed(row["key"], row["place"], row["poison"], row["content"])
            for row in await admin.fetch("SELECT * FROM faults_ledger", timeout=within)
        }
        trail = [step_of(row) for row in await admin.fetch(TRAIL, timeout=within)]
        # Of what was cleaned away, the trail has the end.
        ends = {step.event_id: step.became for step in trail}
        found = await admin.fetch(_STATES, timeout=within)
        states = {str(row["event_id"]): str(row["state"]) for row in found}
        result.problems += await roles.overreach(admin)
    stored = [
        Seen(record.event_id, record.content, record.partition)
        for record in await readers.read_all(world.plan.broker, world.broker.address, within)
    ]
    arrived = await _arrivals(world, {seen.event_id for seen in stored})
    result.late_writes_refused = len(world.events.since(0, "LeaseLost"))
    told = relay_record.read(world.asked.lines(), world.events.lines())
    broken = broken_by(result)
    gone = cleaned_early(ends, states, world.plan)
    return Evidence(world.history.lines(), ledger, ends | states, trail, told, stored, arrived, broken, gone)


def cleaned_early(ends: Mapping[str, str], found: Collection[str], plan: Plan) -> list[str]:
    """The messages that ended in a state in which they are kept, and were not found in the table."""
    return [event_id for event_id, state in ends.items() if state in plan.kept and event_id not in found]


def broken_by(result: Result) -> list[Broken]:
    """What was broken when. It is over a moment after one relay works again: in that the others try again, too. That
    all do may take longer, and then explains no more."""
    after = result.plan.settings["backoff_cap"]
    started = Broken(repeats.STARTING, 0.0, result.began + after)
    return [
        started,
        *(
            Broken(deed.kind, deed.began, (deed.healed if deed.resumed is None else deed.resumed) + after)
            for deed in result.deeds
        ),
    ]


async def _arrivals(world: World, stored: set[str]) -> dict[str, list[Seen]]:
    """What each consumer saw; all have a while to see everything that the broker stored."""
    deadline = time.monotonic() + CATCH_UP_SECONDS + world.plan.seconds
    while True:
        arrived: dict[str, list[Seen]] = {consumer.base: [] for consumer in world.consumers}
        for line in world.arrivals.lines():
            arrived[line["consumer"]] += [
                Seen(event_id, content, at=line["at"])
                for event_id, content in zip(line["ids"], line["contents"], strict=True)
            ]
        behind = any(stored - {seen.event_id for seen in several} for several in arrived.values())
        if not behind or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.2)
    for consumer in world.consumers:
        await consumer.kill()
    return arrived


def step_of(row: Any) -> Step:
    return Step(
        event_id=str(row["event_id"]),
        who=row["who"],
        was=row["was"],
        became=row["became"],
        old_token=None if row["old_token"] is None else str(row["old_token"]),
        new_token=None if row["new_token"] is None else str(row["new_token"]),
        held=row["held_seconds"],
        miscount=row["miscount"],
        row=str(row["row_id"]),
    )
