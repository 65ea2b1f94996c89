"""Checks that every change of a message was made by the owner of its lease, under the lease that it meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.faults.relay_record import Presented, RelayRecord

ENDED_BY: Mapping[str, tuple[str, ...]] = {
    "published": ("publish",),
    "dead": ("fail",),
    "pending": ("fail", "release", "undo_claim"),
}
"""The writes that end a lease, by what becomes of its message."""


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
    miscount: bool = False
    """True if attempts were charged or refunded in a wrong way."""
    row: str = ""

    @property
    def ends_a_lease(self) -> bool:
        return self.was == "leased" and self.became in ENDED_BY


class Asked:
    """What relays presented, by whom, row and token."""

    def __init__(self, presented: Iterable[Presented]) -> None:
        self._by_lease: dict[tuple[str, str | None, str], list[Presented]] = {}
        for each in presented:
            self._by_lease.setdefault((each.relay, each.row, each.token), []).append(each)

    def of(self, who: str, row: str, token: str | None) -> Sequence[Presented]:
        """Of one row under one token, in the order it was presented in."""
        if token is None:
            return ()
        return [each for which in (row, None) for each in self._by_lease.get((who, which, token), ())]

    def that_made(self, step: Step) -> Presented | None:
        """The last write that can have ended a lease the way a step did: of its owner, of that very token, and not
        refused."""
        fitting = [
            each
            for each in self.of(step.who, step.row, step.old_token)
            if each.write in ENDED_BY[step.became] and each.accepted is not False
        ]
        return fitting[-1] if fitting else None


def stale_writes(trail: Sequence[Step], told: RelayRecord, lock_ttl: float) -> list[str]:
    """Changes that were not the writer's to make.

    A row without a lease can only be leased, under the token of a claim that its relay sent. A lease belongs to the
    relay that took it: another may take it over only once its time is over. It is ended by its owner, with a write for
    which that very token was presented: of a relay that has leased a row twice, too, the write for the first lease is
    stale. What is published or dead does not change. Each change of a row begins where the one before it ended. And a
    write that was confirmed to a relay was made under the lease that it had presented, and under no other.
    """
    asked = Asked(told.presented)
    owners: dict[str | None, str] = {}
    states: dict[str, str] = {}
    stale: list[str] = []
    for step in trail:
        allowed = (
            step.was == states.get(step.event_id, "pending")
            and _was_theirs(step, owners, lock_ttl)
            and _was_asked_for(step, told, asked)
        )
        if not allowed:
            stale.append(step.event_id)
        states[step.event_id] = step.became
        if step.new_token is not None and step.new_token != step.old_token:
            owners[step.new_token] = step.who
    found = set(stale)
    return stale + [event_id for event_id in _done_elsewhere(trail, told) if event_id not in found]


def _was_theirs(step: Step, owners: Mapping[str | None, str], lock_ttl: float) -> bool:
    fresh = (
        owners.get(step.new_token, step.who) == step.who
    )  # one token is of one claim, of as many rows as it took
    if step.was == "pending":
        return step.became == "leased" and fresh
    if step.was != "leased":
        return False
    if step.became == "leased":
        return step.held is not None and step.held >= lock_ttl and fresh
    return owners.get(step.old_token) == step.who and step.new_token is None


def _was_asked_for(step: Step, told: RelayRecord, asked: Asked) -> bool:
    if step.became == "leased":
        claim = told.claims.get(step.new_token or "")
        return claim is not None and claim.relay == step.who
    return step.ends_a_lease and asked.that_made(step) is not None


def _done_elsewhere(trail: Sequence[Step], told: RelayRecord) -> list[str]:
    """Messages whose write was confirmed to a relay, although it ended no lease of the token presented."""
    ended: Counter[tuple[str, str, str | None]] = Counter(
        (step.who, step.row, step.old_token) for step in trail if step.ends_a_lease
    )
    accepted: Counter[tuple[str, str, str | None]] = Counter(
        (each.relay, each.row, each.token)
        for each in told.presented
        if each.accepted and each.row is not None
    )
    events = {step.row: step.event_id for step in trail}
    return [events.get(row, row) for _, row, _ in accepted - ended]
