"""Slots: how many dispatches a relay has under way at one time, over all its tables and destinations."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

_SHARE: Final = 3
"""How many times what it leaves free a party may have."""


class SlotUser(Protocol):
    """A pool that takes slots. Those of one ``party`` share what it may have: all that lead to one destination."""

    party: object
    slots: int

    def wake(self) -> None:
        """A slot may be free, or the gate may have opened."""
        ...


class Slots:
    """Users take one slot for each dispatch and return it after it.

    ``shared`` slots are never all one party's: it takes more only while a third of what it then has stays free, so that
    a destination that hangs leaves room for the others, known or not. Alone it comes to three quarters of all slots,
    two come to three sevenths each, and so on; a party that has none gets the next that is free.
    """

    def __init__(self, slots: int, *, shared: bool) -> None:
        self.total = slots
        self._free = slots
        self._shared = shared
        self._held: Counter[object] = Counter()
        self._waiting: dict[SlotUser, None] = {}

    def take(self, user: SlotUser) -> bool:
        """Take a slot if there is one for this user; if not, it is woken once there may be."""
        free = self._free
        if self._shared and free:
            held = self._held[user.party]
            if not held or held < _SHARE * (free - 1):
                self._held[user.party] = held + 1
            else:
                free = 0
        if not free:
            self._waiting[user] = None
            return False
        self._free -= 1
        user.slots += 1
        return True

    def give(self, user: SlotUser) -> None:
        """Return a slot; users that wait for one are woken, first come, first served."""
        user.slots -= 1
        self._free += 1
        if self._shared:
            self._held[user.party] -= 1
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for other in waiting:
                other.wake()

    def wants_back(self, user: SlotUser) -> bool:
        """True when a user has to return a slot after this dispatch, for another that waits and has fewer.

        It is woken again when its turn has come."""
        if not self._waiting:
            return False
        crowded = self._held[user.party] > _SHARE * self._free
        for other in self._waiting:
            same = other.party is user.party
            if other is not user and (other.slots + 1 < user.slots if same else crowded):
                self._waiting.pop(user, None)
                self._waiting[user] = None  # behind the others
                return True
        return False
