"""Verdicts: what becomes of rows, before it is on record and after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from outbox_core.relay.in_flight import Delivery

if TYPE_CHECKING:
    from outbox_core.store import RowId

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a row whose dispatch failed: it is rescheduled, or dead."""

    row: Delivery
    error: str
    delay: float
    refund: bool
    dead: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Written:
    """The changes that one step of the completer made. ``rows`` are in flight no longer: resolved, lost or abandoned.

    ``released`` and ``abandoned`` are those of them that went back, or were left to the end of their leases.
    ``deferred`` are all rows whose writes are deferred now; None when that has not changed.
    """

    rows: Sequence[Delivery] = ()
    released: Sequence[Delivery] = ()
    abandoned: Sequence[Delivery] = ()
    deferred: Sequence[Delivery] | None = None


@dataclass(slots=True)
class VerdictBatch:
    """The verdicts of many rows. ``seconds`` are those of published ones whose dispatch was not yet reported."""

    published: list[Delivery] = field(default_factory=list[Delivery])
    seconds: list[float] = field(default_factory=list[float])
    failed: list[Verdict] = field(default_factory=list[Verdict])
    released: list[Delivery] = field(default_factory=list[Delivery])
    reasons: set[str] = field(default_factory=set[str])
    unsure: bool = False
    """A write of it may have happened although no answer came."""
    slow: bool = False
    """It was deferred because it takes too long."""

    @property
    def rows(self) -> list[Delivery]:
        return [*self.published, *(verdict.row for verdict in self.failed), *self.released]

    def __len__(self) -> int:
        return len(self.published) + len(self.failed) + len(self.released)

    def take(self, ids: Collection[RowId]) -> VerdictBatch:
        """Remove the verdicts of these rows; a batch of them."""
        taken = VerdictBatch(reasons=set(self.reasons), unsure=self.unsure)
        self.published, taken.published = _parted(self.published, lambda row: row.id in ids)
        self.failed, taken.failed = _parted(self.failed, lambda verdict: verdict.row.id in ids)
        self.released, taken.released = _parted(self.released, lambda row: row.id in ids)
        if not self.released:
            self.reasons = set()
        return taken

    def beyond(self, most: int) -> VerdictBatch:
        """Remove what there is after the first ``most`` rows; a batch of that."""
        if len(self) <= most:
            return VerdictBatch()
        # By their places, not by their rows: a row may be in here twice, once for each of its leases.
        rest = VerdictBatch(reasons=set(self.reasons), unsure=self.unsure)
        self.published, rest.published = self.published[:most], self.published[most:]
        most -= len(self.published)
        self.failed, rest.failed = self.failed[:most], self.failed[most:]
        most -= len(self.failed)
        self.released, rest.released = self.released[:most], self.released[most:]
        if not self.released:
            self.reasons = set()
        return rest

    def one_by_one(self) -> Iterator[VerdictBatch]:
        """The same verdicts, each in a batch of its own."""
        for row in self.published:
            yield VerdictBatch(published=[row], unsure=self.unsure)
        for verdict in self.failed:
            yield VerdictBatch(failed=[verdict], unsure=self.unsure)
        for row in self.released:
            yield VerdictBatch(released=[row], reasons=self.reasons, unsure=self.unsure)

    def add(self, other: VerdictBatch) -> None:
        """Take verdicts in whose dispatches have been reported."""
        self.published += other.published
        self.failed += other.failed
        self.released += other.released
        self.reasons |= other.reasons
        self.unsure |= other.unsure

    def spell_out(self) -> bool:
        """Write errors without characters that the database's encoding may not have; whether there were any."""
        plain = [replace(verdict, error=_ascii(verdict.error)) for verdict in self.failed]
        changed, self.failed = plain != self.failed, plain
        return changed


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _parted(items: list[_T], taken: Callable[[_T], bool]) -> tuple[list[_T], list[_T]]:
    """Those that stay, and those that are taken."""
    return [item for item in items if not taken(item)], [item for item in items if taken(item)]
