"""How far a relay has read, so that it need not read again and again what lies behind: dead index entries, rows of held
keys, rows in flight.

Reading on from a place is safe only if no row can still appear before it. One can: a transaction that stamped its row
and commits late. So the database is looked at now and then. An enqueue takes its transaction id before its stamp, so
every row that may yet appear belongs to a transaction that was running at the look before its stamp or began after it;
when such a transaction is gone, the relay goes back to before it could have stamped anything.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from outbox_core.store import BEGINNING, Marker, Position, Tick

if TYPE_CHECKING:
    from collections.abc import Iterable

SLACK: Final = timedelta(milliseconds=500)
"""A process may be held up for this long between a look's clock and its snapshot, or a transaction id and a stamp."""


class ScanPosition:
    """The place from which the next claim reads. Goes back whenever something may have appeared behind it."""

    __slots__ = ("_base", "_first_seen", "_furthest", "_last_look", "_returned", "position")

    def __init__(self) -> None:
        self.position: Position = BEGINNING
        self._base: Position = BEGINNING
        self._furthest: Position = BEGINNING
        """Where claims that read on have come to; at first, where the first look was."""
        self._last_look: datetime | None = None
        self._first_seen: dict[Marker, datetime] = {}
        self._returned: Position | None = None
        """The first place to which the relay was sent back since the claim that is under way was sent."""

    def sent(self) -> Position:
        """A claim is sent, which reads on from here."""
        self._returned = None
        return self.position

    def looked(self, tick: Tick) -> None:
        """Take in a look at the database. Between two looks nothing is assumed."""
        previous = self._last_look
        if previous is None or tick.now < previous:
            # The first look, or a clock that was set back: nothing is known about what is running or stamped.
            self._first_seen = dict.fromkeys(tick.uncommitted, BEGINNING[0])
            self._last_look = tick.now
            self._base = BEGINNING
            self._furthest = _before(tick.now)
            self.rewind()
            return
        gone = [self._first_seen.pop(marker) for marker in self._first_seen.keys() - tick.uncommitted]
        for marker in tick.uncommitted:
            self._first_seen.setdefault(marker, previous)
        self._last_look = tick.now
        self._base = _before(previous)
        self.back_to((self._base, *map(_before, gone)))

    def read(self, last: Position | None) -> None:
        """A claim read on to ``last``, or, when it is None, found everything that is due."""
        self.position = self._base if last is None else last
        self._furthest = max(self._furthest, self.position)
        if self._returned is not None:
            self.position = min(self.position, self._returned)

    def back_to(self, places: Iterable[Position]) -> None:
        """Rows were given back, or may have appeared, at these places."""
        self.position = min((self.position, *places))
        self._returned = self.position if self._returned is None else min(self._returned, self.position)

    def rewind(self) -> None:
        """Read from the very beginning next time."""
        self.back_to((BEGINNING,))

    @property
    def is_behind(self) -> bool:
        """Whether claims that read on have been further already."""
        return self.position < self._new

    def skip(self) -> None:
        """What lies behind cannot be read in time: read on from what is new, and leave the rest to sweeps. If that
        cannot be read, either, from what is newest."""
        self.position = max(self.position, self._new if self.is_behind else self._base)

    @property
    def _new(self) -> Position:
        """What came while nothing could be read is new, too: it must not wait for a sweep of all that lies before."""
        return min(self._furthest, self._base)


def _before(moment: datetime) -> Position:
    return BEGINNING if moment <= BEGINNING[0] + SLACK else (moment - SLACK, 0)
