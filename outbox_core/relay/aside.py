"""Outcomes that are set aside so that others need not wait for them: of rows that somebody else keeps locked, and of
those that the database does not come to the end of."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from outbox_core.errors import StorageError
from outbox_core.relay import clock
from outbox_core.relay.outcomes import Outcomes

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.store import RowId, Store
    from outbox_core.table import TableName

LOOK_SECONDS: Final = 1.0
"""Between two looks whether rows that somebody else had locked are free."""
_TRY_SECONDS: Final = 15.0
"""After a slow one that was slow again, before another has its turn: all others wait for it."""
_MOST_SLOW: Final = 100
"""If there are more it is not those rows, but the database."""
_logger: Final = logging.getLogger("outbox_core.relay")


class Aside:
    """Tells with ``changed`` which rows are in it. A stop does not wait for them: their leases end."""

    def __init__(self, table: TableName, store: Store, changed: Callable[[Sequence[Delivery]], None]) -> None:
        self._table = table
        self._store = store
        self._changed = changed
        self._locked = Outcomes()
        self._slow: deque[Outcomes] = deque()
        self._next_look = 0.0
        self._next_try = 0.0

    def __bool__(self) -> bool:
        return bool(self._locked or self._slow)

    @property
    def is_due(self) -> bool:
        """Whether one that was slow may be tried now: the last one that was tried is through."""
        return bool(self._slow) and clock.now() >= self._next_try

    async def take_locked(self, batch: Outcomes) -> bool | None:
        """Those that somebody else keeps locked: whether there were any; None when the database does not answer."""
        found = await self._find_locked(batch)
        if not found:
            return None if found is None else False
        locked = batch.take(found)
        _logger.warning(
            "%s: somebody keeps %d message(s) locked; their outcomes are recorded when they are free again"
            " (the first: topic %s, event %s)",
            self._table,
            len(locked),
            locked.rows[0].message.meta.topic,
            locked.rows[0].message.meta.event_id,
        )
        self._locked.add(locked)
        self._next_look = clock.now() + LOOK_SECONDS
        self._tell()
        return True

    def take_slow(self, batch: Outcomes, error: StorageError) -> bool:
        """The outcome of a single row, which was not written in time; false when there are too many already."""
        if len(self._slow) >= _MOST_SLOW:
            return False
        (row,) = batch.rows
        alone = batch.take({row.id})
        if not batch.slow:
            _logger.warning(
                "%s: the outcome of message %s (topic %s) is not recorded in time: %s;"
                " others go first, and it is tried again until its lease ends",
                self._table,
                row.message.meta.event_id,
                row.message.meta.topic,
                error,
            )
        alone.slow = True
        self._slow.append(alone)
        self._next_try = clock.now() + _TRY_SECONDS
        self._tell()
        return True

    async def in_turn(self, *, stopping: bool) -> list[Outcomes]:
        """What may be written now: all that nobody keeps locked any more, and one that was slow, which a relay that is
        ``stopping`` has no time for."""
        now, again = clock.now(), list[Outcomes]()
        if self._locked and now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            locked = await self._find_locked(self._locked)
            if locked is not None:
                again.append(self._locked.take({row.id for row in self._locked.rows} - locked))
        if self.is_due and not stopping:
            again.append(self._slow.popleft())
        if again:
            self._tell()
        return again

    async def _find_locked(self, batch: Outcomes) -> set[RowId] | None:
        try:
            return await self._store.locked_rows(self._table, [row.id for row in batch.rows])
        except StorageError:
            return None  # it is the database that is away

    def _tell(self) -> None:
        self._changed([*self._locked.rows, *(row for alone in self._slow for row in alone.rows)])
