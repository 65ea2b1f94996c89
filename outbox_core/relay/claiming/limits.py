"""Limits of a claim: how many rows it asks for and how far it reads. More while a backlog lasts, less when that was too
much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outbox_core.errors import ContentUnreadable, StorageError, StorageTimeout
from outbox_core.runtime import clock
from outbox_core.runtime.pacing import AdaptiveLimit
from outbox_core.store import END, Position

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Batch
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.store import Store
    from outbox_core.table import TableName

GROWTH: Final = 10
"""How many times ``batch_size`` a claim may ask for while a backlog lasts."""
_FIRST_SPAN: Final = 100_000
_LEAST_SPAN: Final = 2_000
_MOST_SPAN: Final = 4_000_000
_REMEMBERED_SECONDS: Final = 60.0
_MOST_TIMEOUTS: Final = 2
_QUICK: Final = 1 / 20
"""A share of the time that a statement has: a claim that took less may read further."""


class ClaimLimits:
    """Grow with claims that come back full, shrink with those that the database did not bring to an end."""

    def __init__(self, settings: RelaySettings) -> None:
        size = settings.batch_size
        self.rows = AdaptiveLimit(size, most=size * GROWTH)
        """Rows to ask for."""
        self._span = AdaptiveLimit(_FIRST_SPAN, least=_LEAST_SPAN, most=_MOST_SPAN, shrink_by=4)
        self._bounded = False
        """True when the span counts: everything there is was too much."""
        self._max_bytes = settings.batch_bytes
        self._quick_seconds = _QUICK * settings.database_timeout
        self._timeouts = 0
        self._remembered_until = 0.0

    @property
    def span(self) -> int | None:
        """Due rows that a claim may pass, leased or not and wherever they go; None: all there are."""
        return self._span.value if self._bounded else None

    @span.setter
    def span(self, span: int) -> None:
        self._span.value, self._bounded = span, True

    @property
    def too_far(self) -> bool:
        """True when claims were broken off one after another, though each asked for less than the one before."""
        return self._timeouts >= _MOST_TIMEOUTS

    async def end(self, store: Store, table: TableName, since: Position) -> Position:
        """How far a claim reads from a position: to the end, unless that was too far."""
        if not self._bounded:
            return END
        end = await store.position_after(table, since, self._span.value)
        # Positions before 1700 are not told apart.
        return END if end is None or end <= since else end

    def claimed(self, batch: Batch, seconds: float) -> None:
        """A claim came to its end after ``seconds``."""
        self._timeouts = 0
        self._set_rows(batch)
        if self._bounded and seconds < self._quick_seconds:
            # Of claims that read on most are quick, whatever lies behind: that it is much is not forgotten so soon.
            if self._span.value >= self._span.most and clock.now() >= self._remembered_until:
                self._bounded = False
            else:
                self._span.grow()

    def failed(self, error: StorageError) -> None:
        """A claim did not come to its end: it may have asked for too much."""
        if isinstance(error, ContentUnreadable):
            self.rows.value = 1
        elif isinstance(error, StorageTimeout):
            self._timeouts += 1
            self._remembered_until = clock.now() + _REMEMBERED_SECONDS
            self.rows.shrink()
            if self._bounded:
                self._span.shrink()
            else:
                self._span.reset()
                self._bounded = True

    def learn(self, other: ClaimLimits) -> None:
        """Take over what others have found to be too far."""
        if not self._bounded and other.span is not None:
            self.span, self._remembered_until = other.span, other._remembered_until

    def _set_rows(self, batch: Batch) -> None:
        count, size, rows = batch.count, batch.bytes, self.rows
        if not batch.full:
            rows.reset()
        elif batch.claim.limit < rows.value:
            pass  # a claim of a crash suspect says nothing about the backlog
        elif size > 2 * self._max_bytes:
            # The store weighs rows as they are kept, and they were several times as large here.
            rows.value = max(1, count * self._max_bytes // size)
        elif count >= batch.claim.limit:
            rows.grow()
        else:
            # Full by its bytes. The database writes out every row that it weighs: no more are worth it than might fit.
            rows.value = min(rows.value, max(1, 2 * count))
