"""Held keys wait for the time their first message had when last seen; an operator may have changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outbox_core.errors import StorageTimeout
from outbox_core.relay import clock
from outbox_core.relay.wakeups import MAX_SWEEP_SECONDS, after_sweep

if TYPE_CHECKING:
    from outbox_core.relay.floors import Floors
    from outbox_core.relay.keys import Keys
    from outbox_core.store import Store, View
    from outbox_core.table import TableName

_MOST_KEYS: Final = 500
_FEWER: Final = 10


class Reviews:
    """Looks at waiting keys now and then, by turns: at fewer of them when the database did not come to the end."""

    def __init__(self, table: TableName, store: Store, keys: Keys) -> None:
        self._table = table
        self._store = store
        self._keys = keys
        self._limit = _MOST_KEYS
        self.last = 0.0
        """When the last one was."""
        self.next = 0.0
        """When another is due."""

    @property
    def is_due(self) -> bool:
        """Whether it is time for another."""
        return clock.now() >= self.next

    async def hold(self, floors: Floors, view: View) -> None:
        """Look at waiting keys. Raises StorageError, and then others have their turn before it is tried again."""
        now = clock.now()
        self.last = now
        self.next = now + MAX_SWEEP_SECONDS
        keys = self._keys.waiting(now, self._limit)
        if keys:
            try:
                found = await self._store.predecessors(self._table, floors.spans_of_all(keys), view)
            except StorageTimeout:
                self._limit = max(1, self._limit // _FEWER)
                raise
            self._limit = min(self._limit * 2, _MOST_KEYS)
            self._keys.reviewed(keys, found, clock.now())
        self.next = after_sweep(now)
