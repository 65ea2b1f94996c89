"""One run from its first message to its verdict."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults import brokers, soak
from tests.faults.classify import Committed, Evidence, Step, Verdict, classify
from tests.faults.nemesis import Deed, rage
from tests.faults.plan import TABLE, Plan
from tests.faults.world import EXIT_SECONDS, World, opened

CATCH_UP_SECONDS = 20.0
_STATES = f"SELECT event_id, faults_state(published_at, dead_at, lock_token) AS state FROM {TABLE}"  # noqa: S608
_TRAIL = "SELECT *, extract(epoch FROM held)::float8 AS held_seconds FROM faults_trail ORDER BY number"


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

    @property
    def by_kind(self) -> Counter[str]:
        return Counter(deed.kind for deed in self.deeds if deed.hit)

    @property
    def good(self) -> bool:
        return self.verdict.good and self.verdict.committed > 0 and not self.problems


async def run(plan: Plan, kinds: Sequence[str], tell: Callable[[str], None]) -> Result:
    """Write, break and deliver; then heal, let everything come to rest, and count. Without kinds: measure instead."""
    result = Result(plan, time.monotonic())

    def tell_deed(deed: Deed) -> None:
        if deed.recovered is None:
            after = "NOTHING WORKED AFTER THAT"
            result.problems.append(f"nothing was published any more after {deed.kind}")
        else:
            after = f"working again {deed.recovered - deed.healed:.1f} s later"
        mark = "" if deed.hit else "NOT FELT "
        tell(f"  {deed.began - result.began:6.1f} s  {deed.kind:<22} {mark}{deed.told}; {after}")

    tell(f"run: {plan.name}")
    async with opened(plan) as world:
        await world.until_working()
        result.began = time.monotonic()
        if kinds:
            result.deeds, result.missing = await rage(world, kinds, plan.seconds, tell_deed)
        else:
            result.trends = soak.trends(await soak.watch(world))
            grown = [name for name, trend in result.trends.items() if not trend.good]
            result.problems += [f"{name} grew while nothing was broken" for name in grown]
            unseen = [name for name in soak.ALLOWED if name not in result.trends]
            result.problems += [f"{name} was measured too rarely to say anything" for name in unseen]
        result.problems += [f"{deed.kind}: {deed.told}" for deed in result.deeds if deed.broken_promise]
        result.problems += [
            f"{kind} was never felt"
            for kind in kinds
            if kind not in result.missing and not result.by_kind[kind]
        ]
        await _quiet_end(world, result)
        evidence = await _gather(world, result)
        result.verdict = classify(evidence, lock_ttl=plan.settings["lock_ttl"])
        if not result.good:
            tell(f"what its processes told is kept in {world.keep_journals()}")
    result.committed_at = [line["at"] for line in evidence.history if line["kind"] == "ok"]
    result.arrived_at = [at for at, _ in evidence.arrived]
    result.ended = time.monotonic()
    return result


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


async def _gather(world: World, result: Result) -> Evidence:
    async with world.admin() as admin:
        ledger = {
            str(row["event_id"]): Committed(row["key"], row["place"], row["poison"])
            for row in await admin.fetch("SELECT * FROM faults_ledger")
        }
        states = {str(row["event_id"]): str(row["state"]) for row in await admin.fetch(_STATES)}
        trail = [_step(row) for row in await admin.fetch(_TRAIL)]
    stored = await brokers.read_all(world.plan.broker, world.broker.address)
    arrived = await _arrivals(world, set(stored), result)
    result.late_writes_refused = len(world.events.since(0, "LeaseLost"))
    return Evidence(world.history.lines(), ledger, states, trail, stored, arrived)


async def _arrivals(world: World, stored: set[str], result: Result) -> list[tuple[float, str]]:
    """What the consumer saw; it has a while to see all that the broker stored."""
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while True:
        arrived = [(line["at"], event_id) for line in world.arrivals.lines() for event_id in line["ids"]]
        behind = stored - {event_id for _, event_id in arrived}
        if not behind or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.2)
    await world.consumer.kill()
    if behind:
        result.problems.append(f"the consumer never saw {len(behind)} messages that the broker has")
    return arrived


def _step(row: Any) -> Step:
    return Step(
        event_id=str(row["event_id"]),
        who=row["who"],
        was=row["was"],
        became=row["became"],
        old_token=None if row["old_token"] is None else str(row["old_token"]),
        new_token=None if row["new_token"] is None else str(row["new_token"]),
        held=row["held_seconds"],
    )
