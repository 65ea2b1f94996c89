"""How many dispatches a relay has under way at one time, over all its tables and destinations."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

_REACH: Final = 3
"""How many times what it leaves free a party may have."""


class Holder(Protocol):
    """Who takes places. Those of one ``party`` share what it may have: all that lead to one destination."""

    party: object
    places: int

    def place_free(self) -> None:
        """Called when one that waits may have a place."""
        ...


class Budget:
    """Places for dispatches. Holders take one for each dispatch and give it back after it.

    A ``shared`` one is never all one party's: it takes more only while a third of what it then has stays free, so that
    a destination that hangs leaves room for the others, known or not. Alone it comes to three quarters of all places,
    two come to three sevenths each, and so on; a party that has none gets the next that is free.
    """

    def __init__(self, places: int, *, shared: bool) -> None:
        self.places = places
        self._free = places
        self._shared = shared
        self._held: Counter[object] = Counter()
        self._waiting: dict[Holder, None] = {}

    def take(self, holder: Holder) -> bool:
        """Take a place if there is one for this holder; if not, it is called once there may be."""
        free = self._free
        if self._shared and free:
            held = self._held[holder.party]
            if not held or held < _REACH * (free - 1):
                self._held[holder.party] = held + 1
            else:
                free = 0
        if not free:
            self._waiting[holder] = None
            return False
        self._free -= 1
        holder.places += 1
        return True

    def give(self, holder: Holder) -> None:
        """Give a place back; whoever waits for one is called, first come, first served."""
        holder.places -= 1
        self._free += 1
        if self._shared:
            self._held[holder.party] -= 1
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for other in waiting:
                other.place_free()

    def wants_back(self, holder: Holder) -> bool:
        """Whether a holder is to give a place back after this dispatch, for another that waits and has less.

        Such a one is called again when its turn has come."""
        if not self._waiting:
            return False
        crowded = self._held[holder.party] > _REACH * self._free
        for other in self._waiting:
            same = other.party is holder.party
            if other is not holder and (other.places + 1 < holder.places if same else crowded):
                self._waiting.pop(holder, None)
                self._waiting[holder] = None  # behind the others
                return True
        return False
