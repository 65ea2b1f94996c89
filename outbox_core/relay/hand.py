"""What a relay has in hand of one table: leased rows from their claim until their outcome is on record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import anyio

if TYPE_CHECKING:
    from outbox_core.store import Row


class Hand:
    """Bounds memory and leases: claims wait while it is full."""

    def __init__(self, max_bytes: int) -> None:
        self.rows = 0
        self.bytes = 0
        self._aside = 0
        self._leases: dict[UUID, int] = {}
        self._set_apart: set[UUID] = set()
        self._max_bytes = max_bytes
        self._changed = anyio.Event()

    @property
    def tokens(self) -> list[UUID]:
        """Of the claims of which there are still rows."""
        return list(self._leases)

    @property
    def apart(self) -> list[UUID]:
        """Rows of these claims that are not in the order of their keys."""
        return list(self._set_apart)

    @property
    def busy(self) -> int:
        """Rows that are on their way; those whose outcome waits for somebody else's lock are not."""
        return self.rows - self._aside

    def set_aside(self, rows: int) -> None:
        """The outcomes of so many rows wait for somebody else's lock now."""
        self._aside = rows
        self._changed.set()

    def set_apart(self, rows: Iterable[Row]) -> None:
        """These rows go back and were never in the order of their keys: until that is on record, they may be before
        others that are claimed now."""
        self._set_apart.update(row.id for row in rows)

    def take(self, token: UUID, rows: int, size: int) -> None:
        """The rows of one claim, with so many bytes of payload."""
        if rows:
            self.rows += rows
            self.bytes += size
            self._leases[token] = rows

    def drop(self, rows: Sequence[Row]) -> None:
        token, count = None, 0
        for row in rows:
            self.bytes -= len(row.message.payload)
            if row.token is not token:  # those of one claim mostly come together
                self._let_go(token, count)
                token, count = row.token, 0
            count += 1
            if self._set_apart:
                self._set_apart.discard(row.id)
        self._let_go(token, count)
        self.rows -= len(rows)
        self._changed.set()

    def _let_go(self, token: UUID | None, count: int) -> None:
        if token is not None:
            left = self._leases[token] - count
            if left:
                self._leases[token] = left
            else:
                del self._leases[token]

    def has_room(self, max_rows: int, *, shares: int = 1) -> bool:
        """Whether there are no more rows than these at work, and less than so many times the bytes that it may have."""
        return self.busy <= max_rows and self.bytes < shares * self._max_bytes

    async def wait_for_change(self, at_most: float) -> bool:
        """Wait until a row left the hand; false when none did in so many seconds."""
        with anyio.move_on_after(at_most):
            await self._changed.wait()
        changed = self._changed.is_set()
        if changed:
            self._changed = anyio.Event()
        return changed
