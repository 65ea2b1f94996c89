"""What became of every message: from what the writers tried, what the database has and what the broker stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Committed:
    """A row of the ledger: where its message stands in its key, None when order is not promised."""

    key: str | None = None
    place: int | None = None
    poison: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What happened to a message in the outbox table: who changed it, from what to what, and under which lease."""

    event_id: str
    who: str
    was: str
    became: str
    old_token: str | None = None
    new_token: str | None = None
    held: float | None = None
    """For how many seconds the old lease had been held."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a run leaves behind.

    ``history`` has the writers' lines, ``ledger`` what was committed, ``states`` the end of each row of the table,
    ``stored`` what the broker has in its order, ``arrived`` what the consumer saw meanwhile, with the time.
    """

    history: Sequence[Mapping[str, Any]]
    ledger: Mapping[str, Committed]
    states: Mapping[str, str]
    trail: Sequence[Step]
    stored: Sequence[str]
    arrived: Sequence[tuple[float, str]]


@dataclass(slots=True)
class Verdict:
    """Each list has event ids. ``unknown`` are those whose writer never learned the outcome; the ledger knew it."""

    committed: int = 0
    delivered: int = 0
    dead: list[str] = field(default_factory=list[str])
    dead_unplanned: list[str] = field(default_factory=list[str])
    duplicates: int = 0
    lost: list[str] = field(default_factory=list[str])
    phantom: list[str] = field(default_factory=list[str])
    reordered: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])
    unknown_committed: int = 0
    rolled_back: int = 0
    broken_commits: list[str] = field(default_factory=list[str])
    """Committed as the writer knows and not in the ledger, or the other way round: the database's own failure."""
    stale_writes_accepted: list[str] = field(default_factory=list[str])

    @property
    def good(self) -> bool:
        return not (
            self.lost
            or self.phantom
            or self.reordered
            or self.stale_writes_accepted
            or self.dead_unplanned
            or self.broken_commits
        )


def classify(evidence: Evidence, *, lock_ttl: float) -> Verdict:
    """Every id that anybody mentioned, in one place or another."""
    verdict, ledger = Verdict(), evidence.ledger
    times = Counter(evidence.stored)
    seen = set(times) | {event_id for _, event_id in evidence.arrived}
    verdict.committed = len(ledger)
    verdict.dead = [event_id for event_id in ledger if evidence.states.get(event_id) == "dead"]
    verdict.dead_unplanned = [event_id for event_id in verdict.dead if not ledger[event_id].poison]
    verdict.delivered = sum(event_id in times for event_id in ledger)
    verdict.duplicates = sum(count - 1 for count in times.values())
    dead = set(verdict.dead)
    verdict.lost = [event_id for event_id in ledger if event_id not in times and event_id not in dead]
    verdict.phantom = [event_id for event_id in seen if event_id not in ledger]
    verdict.phantom += too_early(evidence)
    verdict.reordered = reordered(evidence.stored, ledger)
    verdict.stale_writes_accepted = stale_writes(evidence.trail, lock_ttl)
    _outcomes(evidence.history, ledger, verdict)
    return verdict


def _outcomes(
    history: Sequence[Mapping[str, Any]], ledger: Mapping[str, Committed], verdict: Verdict
) -> None:
    known: dict[str, bool | None] = {}
    for line in history:
        in_doubt = line["kind"] in ("invoke", "info")
        known |= dict.fromkeys(line["kept"], None if in_doubt else line["kind"] == "ok")
        # What is rolled back on purpose is not committed, whatever became of the rest.
        known |= dict.fromkeys(line["back"], False)
    verdict.unknown = [event_id for event_id, committed in known.items() if committed is None]
    verdict.unknown_committed = sum(event_id in ledger for event_id in verdict.unknown)
    verdict.rolled_back = sum(committed is False for committed in known.values())
    verdict.broken_commits = [
        event_id
        for event_id, committed in known.items()
        if committed is not None and committed != (event_id in ledger)
    ]
    verdict.broken_commits += [event_id for event_id in ledger if event_id not in known]


def too_early(evidence: Evidence) -> list[str]:
    """What a consumer had before its writer had even begun: no commit can have come before it."""
    begun: dict[str, float] = {}
    for line in evidence.history:
        if line["kind"] == "invoke":
            begun |= dict.fromkeys((*line["kept"], *line["back"]), line["at"])
    return [event_id for at, event_id in evidence.arrived if event_id in begun and at < begun[event_id]]


def reordered(stored: Iterable[str], ledger: Mapping[str, Committed]) -> list[str]:
    """First arrivals that come after one of their key which was committed later."""
    wrong: list[str] = []
    highest: dict[str, int] = {}
    for event_id in dict.fromkeys(stored):
        row = ledger.get(event_id)
        if row is None or row.key is None or row.place is None:
            continue
        if row.place < highest.get(row.key, 0):
            wrong.append(event_id)
        highest[row.key] = max(row.place, highest.get(row.key, 0))
    return wrong


def stale_writes(trail: Iterable[Step], lock_ttl: float) -> list[str]:
    """Changes that were not the writer's to make.

    A row without a lease can only be leased. A lease belongs to whoever took it: another may take it over, or bury its
    message, only once its time is over. What is published or dead is changed by nobody. Each change of a row begins
    where the one before it ended.
    """
    owners: dict[str | None, str] = {}
    states: dict[str, str] = {}
    stale: list[str] = []
    for step in trail:
        allowed = step.was == states.get(step.event_id, "pending") and _was_theirs(step, owners, lock_ttl)
        if not allowed:
            stale.append(step.event_id)
        states[step.event_id] = step.became
        if step.new_token is not None and step.new_token != step.old_token:
            owners[step.new_token] = step.who
    return stale


def _was_theirs(step: Step, owners: Mapping[str | None, str], lock_ttl: float) -> bool:
    fresh = (
        owners.get(step.new_token, step.who) == step.who
    )  # one token is of one claim, of as many rows as it took
    if step.was == "pending":
        return step.became == "leased" and fresh
    if step.was != "leased":
        return False
    lapsed = step.held is not None and step.held >= lock_ttl
    if step.became == "leased":
        return lapsed and fresh
    return owners.get(step.old_token) == step.who or (step.became == "dead" and lapsed)
