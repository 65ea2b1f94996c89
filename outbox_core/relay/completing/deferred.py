"""Deferred writes: verdicts that wait so that others need not. Their rows are locked by another session, or the
database does not come to the end of their write."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from outbox_core.errors import StorageError
from outbox_core.relay.completing.verdict_batch import VerdictBatch
from outbox_core.relay.in_flight import Delivery, Stage
from outbox_core.runtime import clock

if TYPE_CHECKING:
    from outbox_core.store import RowId, Store
    from outbox_core.table import TableName

LOCK_CHECK_SECONDS: Final = 1.0
"""Between two checks whether locked rows are free."""
_SLOW_RETRY_SECONDS: Final = 15.0
"""After a slow one that was slow again, before another has its turn: all others wait for it."""
_MAX_SLOW: Final = 100
"""If there are more it is not those rows, but the database."""
_logger: Final = logging.getLogger("outbox_core.relay")


class DeferredWrites:
    """A stop does not wait for them: their leases end."""

    def __init__(self, table: TableName, store: Store) -> None:
        self._table = table
        self._store = store
        self._locked = VerdictBatch()
        self._slow: deque[VerdictBatch] = deque()
        self._next_check = 0.0
        self._next_retry = 0.0
        self._changed = False

    def __bool__(self) -> bool:
        return bool(self._locked or self._slow)

    @property
    def has_slow_due(self) -> bool:
        """True when a slow one may be tried now."""
        return bool(self._slow) and clock.now() >= self._next_retry

    def changed(self) -> list[Delivery] | None:
        """All rows whose writes are deferred, if that has changed since the last time; otherwise None."""
        if not self._changed:
            return None
        self._changed = False
        return [*self._locked.rows, *(row for alone in self._slow for row in alone.rows)]

    async def defer_locked(self, batch: VerdictBatch) -> bool | None:
        """Take the verdicts of rows that another session keeps locked out of a batch. Whether there were any; None when
        the database does not answer."""
        found = await self._find_locked(batch)
        if not found:
            return None if found is None else False
        locked = batch.take(found)
        _logger.warning(
            "%s: %d message(s) are locked by another transaction; their outcomes are recorded when they are free again"
            " (the first: topic %s, event %s)",
            self._table,
            len(locked),
            locked.rows[0].message.meta.topic,
            locked.rows[0].message.meta.event_id,
        )
        self._locked.add(locked)
        self._next_check = clock.now() + LOCK_CHECK_SECONDS
        self._deferred(locked)
        return True

    def defer_slow(self, batch: VerdictBatch, error: StorageError) -> bool:
        """Take the verdict of a single row out of a batch, which was not written in time; false when there are too many
        already."""
        if len(self._slow) >= _MAX_SLOW:
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
        self._next_retry = clock.now() + _SLOW_RETRY_SECONDS
        self._deferred(alone)
        return True

    async def due(self, *, stopping: bool) -> list[VerdictBatch]:
        """Take what may be written now: all that is not locked any more, and one that was slow, for which a relay that
        is ``stopping`` has no time."""
        now, due = clock.now(), list[VerdictBatch]()
        if self._locked and now >= self._next_check:
            self._next_check = now + LOCK_CHECK_SECONDS
            locked = await self._find_locked(self._locked)
            if locked is not None:
                due.append(self._locked.take({row.id for row in self._locked.rows} - locked))
        if self.has_slow_due and not stopping:
            due.append(self._slow.popleft())
        for batch in due:
            self._changed = True
            for row in batch.rows:
                row.stage = Stage.COMPLETING
        return due

    def _deferred(self, batch: VerdictBatch) -> None:
        self._changed = True
        for row in batch.rows:
            row.stage = Stage.DEFERRED

    async def _find_locked(self, batch: VerdictBatch) -> set[RowId] | None:
        try:
            return await self._store.locked_rows(self._table, [row.id for row in batch.rows])
        except StorageError:
            return None  # it is the database that does not answer
