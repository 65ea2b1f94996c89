"""How much one claim asks for and how far it looks: more while a backlog lasts, less when that was too much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outbox_core.errors import ContentUnreadable, StorageError, StorageTimeout
from outbox_core.relay import clock
from outbox_core.store import END, Position

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Batch
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.store import Store
    from outbox_core.table import TableName

GROWTH: Final = 10
"""How many times ``batch_size`` a claim may ask for while a backlog lasts."""
_FEWER: Final = 10
_NEARER: Final = 4
_FIRST_SPAN: Final = 100_000
_LEAST_SPAN: Final = 2_000
_MOST_SPAN: Final = 4_000_000
_REMEMBERED_SECONDS: Final = 60.0
_MOST_TIMEOUTS: Final = 2
_QUICK: Final = 1 / 20
"""Of the time that a statement has: a claim that took less may look further."""


class Reach:
    """Grows with claims that come back full, shrinks with those that the database did not bring to an end."""

    def __init__(self, settings: RelaySettings) -> None:
        self._usual = settings.batch_size
        self._max_bytes = settings.batch_bytes
        self._quick_seconds = _QUICK * settings.database_timeout
        self.limit = settings.batch_size
        """Rows to ask for."""
        self.span: int | None = None
        """Due rows that a claim may come past, whoever has them and wherever they go; None: all there are."""
        self._timeouts = 0
        self._remembered_until = 0.0

    @property
    def too_far(self) -> bool:
        """Whether claims were broken off one after another, though each asked for less than the one before."""
        return self._timeouts >= _MOST_TIMEOUTS

    async def end(self, store: Store, table: TableName, since: Position) -> Position:
        """How far a claim looks from a place: to the end, unless that was too far."""
        if self.span is None:
            return END
        end = await store.position_after(table, since, self.span)
        # Places before 1700 are not told apart.
        return END if end is None or end <= since else end

    def claimed(self, batch: Batch, seconds: float) -> None:
        """A claim came to its end in so many seconds."""
        self._timeouts = 0
        self.limit = self._next_limit(batch)
        if self.span is not None and seconds < self._quick_seconds:
            # Of claims that read on most are quick, whatever lies behind: that it is much is not forgotten so soon.
            over = self.span >= _MOST_SPAN and clock.now() >= self._remembered_until
            self.span = None if over else min(self.span * 2, _MOST_SPAN)

    def failed(self, error: StorageError) -> None:
        """A claim did not come to its end: it may have been too much that was asked for."""
        if isinstance(error, ContentUnreadable):
            self.limit = 1
        elif isinstance(error, StorageTimeout):
            self._timeouts += 1
            self._remembered_until = clock.now() + _REMEMBERED_SECONDS
            self.limit = max(1, self.limit // _FEWER)
            self.span = _FIRST_SPAN if self.span is None else max(_LEAST_SPAN, self.span // _NEARER)

    def learn(self, other: Reach) -> None:
        """What another has found to be too far is too far."""
        if self.span is None:
            self.span, self._remembered_until = other.span, other._remembered_until

    def _next_limit(self, batch: Batch) -> int:
        count, size = batch.count, batch.bytes
        if not batch.full:
            return self._usual
        if batch.claim.limit < self.limit:
            return self.limit  # a cautious claim says nothing about the backlog
        if size > 2 * self._max_bytes:
            # The store weighs rows as they are kept, and they were several times as large here.
            return max(1, count * self._max_bytes // size)
        if count >= batch.claim.limit:
            return min(self.limit * 2, self._usual * GROWTH)
        # Full by its bytes. The database writes out every row that it weighs: no more are worth it than might fit.
        return min(self.limit, max(1, 2 * count))
