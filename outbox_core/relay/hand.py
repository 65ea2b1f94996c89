"""What a relay has in hand of one table: leased rows from their claim until their outcome is on record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from outbox_core.store import Row


class Hand:
    """Bounds memory and leases: claims wait while it is full."""

    def __init__(self, max_bytes: int) -> None:
        self.rows = 0
        self.bytes = 0
        self._max_bytes = max_bytes
        self._changed = anyio.Event()

    def take(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows += 1
            self.bytes += len(row.message.payload)

    def drop(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows -= 1
            self.bytes -= len(row.message.payload)
        self._changed.set()

    def has_room(self, max_rows: int) -> bool:
        return self.rows <= max_rows and self.bytes < self._max_bytes

    async def wait_for_change(self, at_most: float) -> bool:
        """Wait until a row left the hand; false when none did in so many seconds."""
        with anyio.move_on_after(at_most):
            await self._changed.wait()
        changed = self._changed.is_set()
        if changed:
            self._changed = anyio.Event()
        return changed

    async def wait_until_empty(self) -> None:
        while self.rows:
            await self.wait_for_change(1.0)
