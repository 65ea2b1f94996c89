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
        self._rows_aside = 0
        self._bytes_aside = 0
        self._leases: dict[UUID, int] = {}
        self._set_apart: set[UUID] = set()
        self._abandoned: dict[UUID, UUID] = {}
        self._max_bytes = max_bytes
        self._changed = anyio.Event()

    @property
    def tokens(self) -> list[UUID]:
        """Of the claims of which there are still rows."""
        return list(self._leases)

    @property
    def apart(self) -> list[UUID]:
        """Rows of these claims that are not in the order of their keys."""
        return [*self._set_apart, *self._abandoned]

    @property
    def busy(self) -> int:
        """Rows that are on their way; those whose outcome waits so that others need not are not."""
        return self.rows - self._rows_aside

    def set_aside(self, rows: Sequence[Row]) -> None:
        """The outcomes of these rows, and of no others, wait so that others need not."""
        self._rows_aside = len(rows)
        self._bytes_aside = sum(len(row.message.payload) for row in rows)
        self._changed.set()

    def set_apart(self, rows: Iterable[Row]) -> None:
        """These rows go back and were never in the order of their keys: until that is on record, they may be before
        others that are claimed now."""
        self._set_apart.update(row.id for row in rows)

    def abandon(self, rows: Iterable[Row]) -> None:
        """These rows are to leave the hand, and not their leases: whatever is claimed meanwhile comes after them."""
        self._abandoned.update((row.id, row.token) for row in rows)

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
                if self._abandoned:  # without the token the database knows who is leased, and until when
                    self._abandoned = {row: of for row, of in self._abandoned.items() if of != token}

    def has_room(self, max_rows: int, *, shares: int = 1) -> bool:
        """Whether there are no more rows than these at work, and less than so many times the bytes that it may have."""
        return self.busy <= max_rows and self.bytes - self._bytes_aside < shares * self._max_bytes

    async def wait_for_change(self, at_most: float) -> bool:
        """Wait until a row left the hand; false when none did in so many seconds."""
        with anyio.move_on_after(at_most):
            await self._changed.wait()
        changed = self._changed.is_set()
        if changed:
            self._changed = anyio.Event()
        return changed
