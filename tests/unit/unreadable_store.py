"""A store with one row that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from outbox_core.errors import ContentUnreadable, StorageTimeout
from outbox_core.store import Claim, KeyRequest, Leased, RowId
from outbox_core.stores.memory.store import MemoryStore
from outbox_core.table import TableName


class UnreadableStore(MemoryStore):
    """A claim that takes the row fails, as does reading it alone."""

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
