"""What became of rows, before it is on record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from outbox_core.relay.in_flight import Delivery

if TYPE_CHECKING:
    from outbox_core.store import RowId

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failed dispatch means for its row."""

    row: Delivery
    error: str
    delay: float
    refund: bool
    dead: bool
    seconds: float


@dataclass(slots=True)
class Outcomes:
    """Of a batch of rows. ``seconds`` are those of published ones whose dispatch nobody was told of yet."""

    published: list[Delivery] = field(default_factory=list[Delivery])
    seconds: list[float] = field(default_factory=list[float])
    failed: list[Verdict] = field(default_factory=list[Verdict])
    released: list[Delivery] = field(default_factory=list[Delivery])
    reasons: set[str] = field(default_factory=set[str])
    unsure: bool = False
    """Whether a write of it may have happened although no answer came."""
    slow: bool = False
    """Whether it was set aside because it takes too long."""

    @property
    def rows(self) -> list[Delivery]:
        return [*self.published, *(verdict.row for verdict in self.failed), *self.released]

    def take(self, ids: Collection[RowId]) -> Outcomes:
        """Of these rows, which are not in here any more."""
        taken = Outcomes(reasons=set(self.reasons), unsure=self.unsure)
        self.published, taken.published = _parted(self.published, lambda row: row.id in ids)
        self.failed, taken.failed = _parted(self.failed, lambda verdict: verdict.row.id in ids)
        self.released, taken.released = _parted(self.released, lambda row: row.id in ids)
        if not self.released:
            self.reasons = set()
        return taken

    def spell_out(self) -> bool:
        """Write errors without characters that the database's encoding may not have; whether there were any."""
        plain = [replace(verdict, error=_ascii(verdict.error)) for verdict in self.failed]
        changed, self.failed = plain != self.failed, plain
        return changed

    def add(self, other: Outcomes) -> None:
        """Outcomes whose dispatches have been told of."""
        self.published += other.published
        self.failed += other.failed
        self.released += other.released
        self.reasons |= other.reasons
        self.unsure |= other.unsure

    def __len__(self) -> int:
        return len(self.published) + len(self.failed) + len(self.released)

    def beyond(self, most: int) -> Outcomes:
        """What there is after so many rows, which is not in here any more."""
        if len(self) <= most:
            return Outcomes()
        # By their places, not by their rows: a row may be in here twice, once for each of its leases.
        rest = Outcomes(reasons=set(self.reasons), unsure=self.unsure)
        self.published, rest.published = self.published[:most], self.published[most:]
        most -= len(self.published)
        self.failed, rest.failed = self.failed[:most], self.failed[most:]
        most -= len(self.failed)
        self.released, rest.released = self.released[:most], self.released[most:]
        if not self.released:
            self.reasons = set()
        return rest

    def apart(self) -> Iterator[Outcomes]:
        """The same outcomes, each in a batch of its own."""
        for row in self.published:
            yield Outcomes(published=[row], unsure=self.unsure)
        for verdict in self.failed:
            yield Outcomes(failed=[verdict], unsure=self.unsure)
        for row in self.released:
            yield Outcomes(released=[row], reasons=self.reasons, unsure=self.unsure)


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _parted(items: list[_T], taken: Callable[[_T], bool]) -> tuple[list[_T], list[_T]]:
    """Those that stay, and those that are taken."""
    return [item for item in items if not taken(item)], [item for item in items if taken(item)]
