"""A relay's tables in memory: fill them, read them, and stores that outlive a relay or cannot read a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self
from uuid import UUID

from outbox_core.errors import ContentUnreadable, StorageTimeout
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.store import Claim, KeyRequest, Leased, RowId
from outbox_core.stores.memory.database import MemoryRow
from outbox_core.stores.memory.store import MemoryStore
from outbox_core.table import TableName

TABLE = TableName("public", "orders_outbox")
OTHER = TableName("public", "bills_outbox")


async def put(store: MemoryStore, *messages: Message, table: TableName = TABLE) -> None:
    """Enqueue messages in one committed transaction."""
    async with store.transaction() as tx:
        await Outbox(table).enqueue_many(tx, list(messages))


def rows(store: MemoryStore, topic: str = "", table: TableName = TABLE) -> list[MemoryRow]:
    """The rows of one topic, or all."""
    return [row for row in store.table(table).rows.values() if row.record.topic == topic or not topic]


class KeptStore(MemoryStore):
    """A store that outlives the relays it is given to: pass its `connect` to a relay, whose end does not close it."""

    def connect(self) -> Self:
        return self

    async def close(self) -> None:
        pass


class UnreadableStore(MemoryStore):
    """A store with one row that cannot be read: a claim that takes the row fails, as does reading it alone."""

    culprit: UUID | None = None
    error: type[ContentUnreadable | StorageTimeout] = ContentUnreadable

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        return await self._checked(table, claim, await super().claim(table, claim))

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        return await self._checked(table, claim, await super().claim_keys(table, claim, keys))

    async def read_content(self, table: TableName, row_id: RowId) -> None:
        if row_id == self.culprit:
            raise self.error("cannot be read")
        await super().read_content(table, row_id)

    async def _checked(self, table: TableName, claim: Claim, leased: Leased) -> Leased:
        if not claim.without_content and any(row.id == self.culprit for row in leased.rows()):
            await self.undo_claim(table, claim, ())
            raise self.error("cannot be read")
        return leased
