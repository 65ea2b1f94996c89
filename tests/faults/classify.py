"""What became of every message: from what the writers tried, what the database has and what the broker stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.relay_record import RelayRecord
from tests.faults.repeats import Broken, repeats
from tests.faults.trail import Step, stale_writes


@dataclass(frozen=True, slots=True)
class Committed:
    """A row of the ledger: where its message stands in its key, None when order is not promised, and what it says."""

    key: str | None = None
    place: int | None = None
    poison: bool = False
    content: str = ""
    """The writer's digest of everything that it wrote."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as somebody read it from the broker: the digest of what it said, and where or when it was."""

    event_id: str
    content: str = ""
    partition: int = 0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a run leaves behind.

    ``history`` has the writers' lines, ``ledger`` what was committed, ``states`` the end of each row of the table,
    ``trail`` what was done to them, ``told`` what relays say they asked for, ``stored`` what the broker has in its
    order, read at the end, ``arrived`` what each consumer saw meanwhile, ``broken`` what the nemesis did, ``gone`` rows
    that are no longer there and should be.
    """

    history: Sequence[Mapping[str, Any]]
    ledger: Mapping[str, Committed]
    states: Mapping[str, str]
    trail: Sequence[Step]
    told: RelayRecord
    stored: Sequence[Seen]
    arrived: Mapping[str, Sequence[Seen]]
    broken: Sequence[Broken] = ()
    gone: Sequence[str] = ()


@dataclass(slots=True)
class Verdict:
    """Each list has event ids. ``unknown`` are those whose writer never learned the outcome; the ledger knew it."""

    committed: int = 0
    delivered: int = 0
    dead: list[str] = field(default_factory=list[str])
    dead_unplanned: list[str] = field(default_factory=list[str])
    duplicates: int = 0
    duplicates_allowed: int = 0
    """As many as the faults of the run explain, and a stall of the machine."""
    unexplained: list[str] = field(default_factory=list[str])
    """Sent again without a fault that explains it."""
    repeated: list[str] = field(default_factory=list[str])
    """The same, where they are more than a stall of the machine explains."""
    lost: list[str] = field(default_factory=list[str])
    phantom: list[str] = field(default_factory=list[str])
    reordered: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])
    unknown_committed: int = 0
    rolled_back: int = 0
    broken_commits: list[str] = field(default_factory=list[str])
    """Committed as the writer knows and not in the ledger, or the other way round: the database's own failure."""
    stale_writes_accepted: list[str] = field(default_factory=list[str])
    altered: list[str] = field(default_factory=list[str])
    """Somebody read something else than what was written: payload, key, headers or topic."""
    split_keys: list[str] = field(default_factory=list[str])
    """Keys, not ids: their messages are in more than one partition, and nobody keeps them in order there."""
    delivered_poison: list[str] = field(default_factory=list[str])
    """Messages without a destination that arrived at one."""
    miscounted: list[str] = field(default_factory=list[str])
    """A claim did not charge an attempt, or what was given back undispatched had paid for it."""
    unseen: list[str] = field(default_factory=list[str])
    """The broker has them, and not every consumer came to see them."""
    cleaned_early: list[str] = field(default_factory=list[str])
    """Dead letters and published messages that are gone from the table although they are to be kept."""
    untracked: list[str] = field(default_factory=list[str])
    """The broker has them, and the trail never saw them become published: what it says of stale writes is not all."""

    @property
    def wrong(self) -> dict[str, list[str]]:
        """What must not be, by its name; empty when everything is as promised."""
        return {name: found for name in FAILURES if (found := getattr(self, name))}

    @property
    def good(self) -> bool:
        return not self.wrong


FAILURES = (
    "lost", "phantom", "reordered", "stale_writes_accepted", "dead_unplanned", "broken_commits", "altered",
    "split_keys", "delivered_poison", "miscounted", "unseen", "untracked", "repeated",
    "cleaned_early",
)  # fmt: skip
"""The lists of a verdict of which each must be empty."""


def classify(evidence: Evidence, *, lock_ttl: float, stalls: int = 0) -> Verdict:
    """Every id that anybody mentioned, in one place or another. ``stalls`` are repetitions that need no fault."""
    verdict, ledger = Verdict(), evidence.ledger
    order = [seen.event_id for seen in evidence.stored]
    times = Counter(order)
    arrived = {name: {seen.event_id for seen in several} for name, several in evidence.arrived.items()}
    verdict.committed = len(ledger)
    verdict.dead = [event_id for event_id in ledger if evidence.states.get(event_id) == "dead"]
    verdict.dead_unplanned = [event_id for event_id in verdict.dead if not ledger[event_id].poison]
    verdict.delivered = sum(event_id in times for event_id in ledger)
    verdict.duplicates = sum(count - 1 for count in times.values())
    dead = set(verdict.dead)
    verdict.lost = [event_id for event_id in ledger if event_id not in times and event_id not in dead]
    verdict.phantom = [event_id for event_id in set(times).union(*arrived.values()) if event_id not in ledger]
    verdict.phantom += too_early(evidence)
    verdict.reordered = reordered(order, ledger)
    verdict.altered = altered(evidence)
    verdict.split_keys = split_keys(evidence.stored, ledger)
    verdict.delivered_poison = [
        event_id for event_id in times if event_id in ledger and ledger[event_id].poison
    ]
    verdict.unseen = [event_id for event_id in times if any(event_id not in ids for ids in arrived.values())]
    published = {step.event_id for step in evidence.trail if step.became == "published"}
    verdict.untracked = [event_id for event_id in ledger if event_id in times and event_id not in published]
    verdict.stale_writes_accepted = stale_writes(evidence.trail, evidence.told, lock_ttl)
    again = repeats(evidence.trail, evidence.told, times, evidence.broken)
    verdict.duplicates_allowed = again.excused + stalls
    verdict.unexplained = [*again.unexplained]
    verdict.repeated = verdict.unexplained if len(verdict.unexplained) > stalls else []
    verdict.miscounted = list(dict.fromkeys(step.event_id for step in evidence.trail if step.miscount))
    verdict.cleaned_early = [*evidence.gone]
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
    every = [seen for several in evidence.arrived.values() for seen in several]
    early = [seen.event_id for seen in every if seen.event_id in begun and seen.at < begun[seen.event_id]]
    return list(dict.fromkeys(early))


def altered(evidence: Evidence) -> list[str]:
    """What anybody read that is not what its writer wrote."""
    every = [*evidence.stored, *(seen for several in evidence.arrived.values() for seen in several)]
    known = [seen for seen in every if seen.event_id in evidence.ledger]
    wrong = [seen.event_id for seen in known if seen.content != evidence.ledger[seen.event_id].content]
    return list(dict.fromkeys(wrong))


def split_keys(stored: Iterable[Seen], ledger: Mapping[str, Committed]) -> list[str]:
    """Keys that are in several partitions."""
    partitions: dict[str, set[int]] = {}
    for seen in stored:
        row = ledger.get(seen.event_id)
        if row is not None and row.key is not None:
            partitions.setdefault(row.key, set()).add(seen.partition)
    return sorted(key for key, several in partitions.items() if len(several) > 1)


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
