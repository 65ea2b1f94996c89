"""Looking at everything from the beginning now and then: what its holder gave up, or what appeared behind the claims
that read on, is found by that alone."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from outbox_core.relay import clock
from outbox_core.relay.reach import Reach
from outbox_core.relay.wakeups import MAX_SWEEP_SECONDS, after_sweep
from outbox_core.store import BEGINNING, Position

if TYPE_CHECKING:
    from outbox_core.relay.settings import RelaySettings

_SLICE_COST: Final = 4
"""A slice of no use is followed by so many times its own duration without one."""


class Sweeps:
    """The usual sweep, and one in search of a message for a destination that may be back: that begins at the beginning
    whenever it is wanted, and must not take the other one back there each time."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._usual = Sweep(Reach(settings))
        self._search: Sweep | None = None
        self._last: Sweep | None = None
        """Whose slice was the last."""
        self._had_turn = False

    def begin_anew(self) -> None:
        """From the beginning: at once, or when the one that is under way has come to its end."""
        self._usual.begin_anew()
        self._had_turn = False

    def search(self) -> None:
        """Look for one row first, and then for more."""
        self._search = Sweep(Reach(self._settings))
        self._search.reach.limit = 1
        self._search.reach.learn(self._usual.reach)

    @property
    def reach(self) -> Reach:
        """Of the usual one."""
        return self._usual.reach

    def in_turn(self, now: float) -> Sweep | None:
        """Whose slice is due; None when it is the turn of claims that read on, as it is after every slice."""
        if self._search is not None and self._search.is_over:
            self._search = None
        due = [] if self._had_turn else [sweep for sweep in self._all() if sweep.next <= now]
        self._had_turn = bool(due)
        if due:
            self._last = min(due, key=lambda sweep: sweep is self._last)
        return self._last if due else None

    def next_slice(self) -> float:
        """When a sweep that is under way goes on; infinity when none is."""
        return min(sweep.next_slice() for sweep in self._all())

    def _all(self) -> list[Sweep]:
        return [self._usual] if self._search is None else [self._search, self._usual]


class Sweep:
    """Goes on, a slice at a time, between claims that read on from where the last of them ended, and comes to its own
    end where they are: however much lies behind, nobody waits for it."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        """How much a slice is."""
        self.position: Position = BEGINNING
        """Where the next slice begins."""
        self.is_over = False
        """Whether it has come to its end once."""
        self.next = 0.0
        """When another slice is due."""
        self._wanted_again = False

    def next_slice(self) -> float:
        """When a sweep that is under way goes on; infinity when none is."""
        return inf if self.position == BEGINNING else self.next

    def begin_anew(self) -> None:
        """From the beginning. One that is under way goes on first: it would never come to its end where it is wanted
        anew all the time."""
        if self.position == BEGINNING:
            self.next = 0.0
        else:
            self._wanted_again = True

    def read(self, last: Position | None, position: Position, began: float, *, of_use: bool) -> bool:
        """A slice read on to ``last``, or to the end; true when the sweep is over, having come to ``position``. The
        next may come at once after one that was ``of_use``."""
        if last is None or last >= position:
            self.is_over = True
            self.position = BEGINNING
            self.next = 0.0 if self._wanted_again else after_sweep(began)
            self._wanted_again = False
            return True
        # A row that fills a slice alone may go back, and is not to fill the next.
        self.position = (last[0], last[1] + 1)
        now = clock.now()
        self.next = now if of_use else now + _SLICE_COST * (now - began)
        return False

    def pause(self) -> None:
        """Slices do not come to their end: others have their turn before it is tried again."""
        self.next = clock.now() + MAX_SWEEP_SECONDS
