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
        if line["kind"] == "invoke" or line["kind"] == "info":
            known |= dict.fromkeys((*line["kept"], *line["back"]), None)
        else:
            known |= dict.fromkeys(line["kept"], line["kind"] == "ok") | dict.fromkeys(line["back"], False)
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

    A lease belongs to whoever took it. Another may take it over, or bury its message, only once its time is over;
    what is published or dead is changed by nobody.
    """
    owners: dict[str | None, str] = {}
    stale: list[str] = []
    for step in trail:
        lapsed = step.held is not None and step.held >= lock_ttl
        if step.was in ("published", "dead"):
            stale.append(step.event_id)
        elif step.was == "leased" and step.new_token != step.old_token:
            taken = step.became in ("leased", "dead") and lapsed
            if not taken and (step.became == "leased" or owners.get(step.old_token) != step.who):
                stale.append(step.event_id)
        if step.new_token is not None and step.new_token != step.old_token:
            owners[step.new_token] = step.who
    return stale
