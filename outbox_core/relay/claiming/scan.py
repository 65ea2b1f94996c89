"""Scan: where to read. Claims read on from where the last one ended, so that they need not pass again and again what
lies behind: dead index entries, rows of held keys, rows in flight. Rescans read everything from the beginning, in
slices.

Reading on from a position is safe only if no row can still appear before it. One can: a transaction that stamped its
row and commits late. So the database is asked now and then (a tick). An enqueue takes its transaction id before its
stamp, so every row that may yet appear belongs to a transaction that was running at the tick before its stamp or began
after it; when such a transaction is gone, the relay goes back to before it could have stamped anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Final

from outbox_core.errors import StorageError, StorageTimeout
from outbox_core.relay.claiming.limits import ClaimLimits
from outbox_core.runtime import clock
from outbox_core.runtime.pacing import Paced
from outbox_core.store import BEGINNING, Marker, Position, Tick

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Batch
    from outbox_core.relay.settings import RelaySettings

SLACK: Final = timedelta(milliseconds=500)
"""A process may be held up for this long between a tick's clock and its snapshot, or a transaction id and a stamp."""
_SLICE_COST: Final = 4
"""A slice of no use is followed by a pause: its own duration times this."""


class ReadPosition:
    """The position from which the next claim reads on. Goes back whenever something may have appeared behind it."""

    __slots__ = ("_base", "_first_seen", "_furthest", "_gone_back_to", "_last_tick", "position")

    def __init__(self) -> None:
        self.position: Position = BEGINNING
        self._base: Position = BEGINNING
        self._furthest: Position = BEGINNING
        """Where claims that read on have come to; at first, where the first tick was."""
        self._last_tick: datetime | None = None
        self._first_seen: dict[Marker, datetime] = {}
        self._gone_back_to: Position | None = None
        """The first position to which the relay was sent back since the claim that is under way was sent."""

    def sent(self) -> Position:
        """A claim is sent, which reads on from here."""
        self._gone_back_to = None
        return self.position

    def ticked(self, tick: Tick) -> None:
        """Take a tick of the database in. Between two ticks nothing is assumed."""
        previous = self._last_tick
        if previous is None or tick.now < previous:
            # The first tick, or a clock that was set back: nothing is known about what is running or stamped.
            self._first_seen = dict.fromkeys(tick.uncommitted, BEGINNING[0])
            self._last_tick = tick.now
            self._base = BEGINNING
            self._furthest = _before(tick.now)
            self.rewind()
            return
        gone = [self._first_seen.pop(marker) for marker in self._first_seen.keys() - tick.uncommitted]
        for marker in tick.uncommitted:
            self._first_seen.setdefault(marker, previous)
        self._last_tick = tick.now
        self._base = _before(previous)
        self.go_back_to((self._base, *map(_before, gone)))

    def read(self, last: Position | None) -> None:
        """A claim read on to ``last``, or, when it is None, found everything that is due."""
        self.position = self._base if last is None else last
        self._furthest = max(self._furthest, self.position)
        if self._gone_back_to is not None:
            self.position = min(self.position, self._gone_back_to)

    def go_back_to(self, positions: Iterable[Position]) -> None:
        """Rows were released, or may have appeared, at these positions."""
        self.position = min((self.position, *positions))
        self._gone_back_to = (
            self.position if self._gone_back_to is None else min(self._gone_back_to, self.position)
        )

    def rewind(self) -> None:
        """Read from the very beginning next time."""
        self.go_back_to((BEGINNING,))

    @property
    def is_behind(self) -> bool:
        """True when claims that read on have been further already."""
        return self.position < self._new

    def skip(self) -> None:
        """Read on from what is new, and leave the rest to rescans: what lies behind cannot be read in time. If that
        cannot be read, either, read on from what is newest."""
        self.position = max(self.position, self._new if self.is_behind else self._base)

    @property
    def _new(self) -> Position:
        """Where the new begins. What came while nothing could be read is new, too: it must not wait for a rescan of all
        that lies before."""
        return min(self._furthest, self._base)


class Rescan:
    """Goes on, a slice at a time, between claims that read on, and comes to its end where they are: however much lies
    behind, no claim waits for it."""

    def __init__(self, limits: ClaimLimits) -> None:
        self.limits = limits
        """How much a slice is."""
        self.position: Position = BEGINNING
        """Where the next slice begins."""
        self.is_over = False
        """It has come to its end once."""
        self._pace = Paced()
        self._wanted_again = False

    @property
    def next(self) -> float:
        """When another slice is due."""
        return self._pace.at

    @property
    def is_under_way(self) -> bool:
        return self.position != BEGINNING

    def begin_anew(self) -> None:
        """From the beginning. One that is under way goes on first: it would never come to its end where it is wanted
        anew all the time."""
        if self.is_under_way:
            self._wanted_again = True
        else:
            self._pace.reset()

    def read(self, last: Position | None, position: Position, began: float, *, of_use: bool) -> bool:
        """A slice read on to ``last``, or to the end; true when the rescan is over, having come to ``position``. The
        next may come at once after one that was ``of_use``."""
        now = clock.now()
        if last is None or last >= position:
            self.is_over = True
            self.position = BEGINNING
            self._pace.ended(began, now)
            if self._wanted_again:
                self._pace.reset()
            self._wanted_again = False
            return True
        # A row that fills a slice alone may go back, and must not fill the next.
        self.position = (last[0], last[1] + 1)
        self._pace.at = now if of_use else now + _SLICE_COST * (now - began)
        return False

    def pause(self) -> None:
        """Slices do not come to their end: others have their turn before it is tried again."""
        self._pace.postpone(clock.now())


class Rescans:
    """The usual rescan, which finds what its holder abandoned and what appeared behind; and a search for one row with
    which to try a destination. That begins at the beginning whenever it is wanted, and must not take the usual one back
    there each time."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self.usual = Rescan(ClaimLimits(settings))
        self._search: Rescan | None = None
        self._last: Rescan | None = None
        """Whose slice was the last."""
        self._had_turn = False

    def begin_anew(self) -> None:
        """From the beginning: at once, or when the one that is under way has come to its end."""
        self.usual.begin_anew()
        self._had_turn = False

    def search(self) -> None:
        """Look for one row first, and then for more."""
        self._search = Rescan(ClaimLimits(self._settings))
        self._search.limits.rows.value = 1
        self._search.limits.learn(self.usual.limits)

    def in_turn(self, now: float) -> Rescan | None:
        """Whose slice is due; None when it is the turn of claims that read on, as it is after every slice."""
        if self._search is not None and self._search.is_over:
            self._search = None
        due = [] if self._had_turn else [rescan for rescan in self._all() if rescan.next <= now]
        self._had_turn = bool(due)
        if due:
            self._last = min(due, key=lambda rescan: rescan is self._last)
        return self._last if due else None

    def next_slice(self) -> float:
        """When a rescan that is under way goes on; infinity when none is."""
        return min(rescan.next if rescan.is_under_way else inf for rescan in self._all())

    def _all(self) -> list[Rescan]:
        return [self.usual] if self._search is None else [self._search, self.usual]


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a claim: from ``since`` on, within ``limits``; a slice of a ``rescan``, or on from ``position``."""

    since: Position
    position: Position
    limits: ClaimLimits
    rescan: Rescan | None
    began: float


class Scan:
    """Where the claims of one table read."""

    def __init__(self, settings: RelaySettings) -> None:
        self._position = ReadPosition()
        self._rescans = Rescans(settings)
        self.limits = ClaimLimits(settings)
        """Limits of claims that read on."""

    @property
    def is_rescanning(self) -> bool:
        """True when a rescan is under way: what lies before its end is not read yet."""
        return self.next_slice() < inf

    def next_slice(self) -> float:
        """When a rescan that is under way goes on; infinity when none is."""
        return self._rescans.next_slice()

    def next_range(self, now: float, *, from_beginning: bool = False) -> Range:
        """Choose what the next claim reads: on from the position, or a slice of a rescan, by turns. A claim that reads
        ``from_beginning`` is no rescan's."""
        rescan = None if from_beginning else self._rescans.in_turn(now)
        position = self._position.sent()
        since = position
        if from_beginning:
            since = BEGINNING
        elif rescan is not None:
            since = min(rescan.position, position)  # which may have gone back meanwhile
        limits = self.limits if rescan is None or since == position else rescan.limits
        return Range(since, position, limits, rescan, now)

    def read(self, read: Range, last: Position | None, batch: Batch, *, of_use: bool) -> None:
        """A claim read on to ``last``, or, when it is None, found everything that is due."""
        rescan = read.rescan
        if rescan is None or rescan.read(last, read.position, read.began, of_use=of_use):
            self._position.read(last)
        read.limits.claimed(batch, clock.now() - read.began)

    def failed(self, read: Range, error: StorageError) -> None:
        """A claim did not come to its end."""
        limits, rescan = read.limits, read.rescan
        limits.failed(error)
        self.limits.learn(limits)
        self._rescans.usual.limits.learn(limits)
        if limits.too_far and rescan is not None:
            rescan.pause()
        behind = read.since == read.position and self._position.is_behind
        if (limits.too_far and rescan is None) or (isinstance(error, StorageTimeout) and behind):
            self._position.skip()

    def skip(self) -> None:
        """Read on from what is new: what lies behind cannot be read in time."""
        self._position.skip()

    def ticked(self, tick: Tick) -> None:
        """Take a tick of the database in."""
        self._position.ticked(tick)

    def go_back_to(self, positions: Iterable[Position]) -> None:
        """Rows were released, or may have appeared, at these positions."""
        self._position.go_back_to(positions)

    def start_over(self) -> None:
        """Read everything again. If that is known to be too much, rescans pass it, and no claim waits."""
        if self.limits.span is None:
            self._position.rewind()
        self._rescans.begin_anew()

    def destination_back(self, *, closed: bool) -> None:
        """A destination takes messages again: read everything. Or it may: find one to try it with, while no claim waits
        for that."""
        if closed:
            self.start_over()
        else:
            self._rescans.search()


def _before(moment: datetime) -> Position:
    return BEGINNING if moment <= BEGINNING[0] + SLACK else (moment - SLACK, 0)
