"""The database under test, as the stores' suite uses it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from outbox_core.store import RowId, Store
    from outbox_core.table import TableName


class Database(ABC):
    """A database under test. Each test gets one from the fixture ``database``, its table empty."""

    table: TableName
    takeover: float
    """Seconds of silence after which the stores made here replace a leader. The suite waits for it, so about 1; at
    least 2 where timeouts are whole seconds."""

    @abstractmethod
    def make(self) -> Store:
        """A new client of the same data, with sessions of its own, not opened yet. The suite opens and closes it."""

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """An open transaction that `Outbox.enqueue` accepts: committed with the block, rolled back when it raises."""

    @abstractmethod
    def unknown_id(self) -> RowId:
        """An id of the stores' own kind that no row has."""

    @abstractmethod
    async def replay(self, event_id: UUID) -> None:
        """Make a dead message pending again, due now, its ``replays`` counted up: what an operator does."""
