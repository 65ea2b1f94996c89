"""A plain model of the table: what each committed row must look like, and which of a key come first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from outbox_core.store import LAST_SEQUENCE, Claim, KeyRequest, LeasedRow

LEASE_ENDED = "TX.LEASE the lease before ended without an outcome"


@dataclass
class Expected:
    """A row as the model has it. ``due`` and ``expired`` stand for the clock."""

    sequence: int
    key: str | None = None
    state: str = "pending"
    attempts: int = 0
    replays: int = 0
    due: bool = True
    token: UUID | None = None
    expired: bool = False
    error: str | None = None
    late: bool = False
    """Whether a later one of its key was leased or through before it was committed."""

    @property
    def unresolved(self) -> bool:
        return self.state in ("pending", "in_flight")

    @property
    def claimable(self) -> bool:
        return self.due and (self.state == "pending" or (self.state == "in_flight" and self.expired))

    def lease(self, token: UUID) -> None:
        if self.state == "in_flight":
            self.error = LEASE_ENDED
        self.state, self.token, self.expired = "in_flight", token, False
        self.attempts += 1

    def unlock(self) -> None:
        """Pending again, the attempt given back."""
        self.state, self.token, self.expired = "pending", None, False
        self.attempts -= 1


@dataclass
class Owner:
    """Whoever holds a claim's rows, alive or thought dead: its token fences all it writes."""

    claim: Claim
    rows: list[LeasedRow]
    apart: list[LeasedRow] = field(default_factory=list[LeasedRow])
    """Those that stood behind another one when they were claimed: they go back undispatched."""
    followed: Sequence[KeyRequest] = ()
    """The keys it claimed rows of, and how many of each; empty when it claimed whatever was due."""


def heads(rows: Iterable[Expected], key: str, count: int) -> list[Expected]:
    """The first unresolved rows of a key. A replayed one that waits is none of them."""
    found = [row for row in rows if row.key == key and row.unresolved and (not row.replays or row.claimable)]
    return sorted(found, key=lambda row: row.sequence)[:count]


def hidden_before(
    rows: Iterable[Expected], key: str, sequence: int, known: Collection[int], *, dead_hold_keys: bool
) -> Expected | None:
    """The first row of a key that has to be through before a later one goes; those in the same hand, whose sequences
    are known there, are no matter. With the last sequence of all it is what a key could be followed for, also a
    replayed one, for which nobody waits."""
    found = [
        row
        for row in rows
        if row.key == key
        and row.sequence < sequence
        and (row.unresolved or (dead_hold_keys and row.state == "dead"))
        and row.sequence not in known
        and (not row.replays or (sequence == LAST_SEQUENCE and row.claimable))
    ]
    return min(found, key=lambda row: row.sequence, default=None)
