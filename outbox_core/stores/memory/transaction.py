"""A transaction on messages in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

import anyio

from outbox_core.errors import NotInTransaction
from outbox_core.record import Existing, NewRecord, State, StoredMessage
from outbox_core.stores.memory.database import MemoryRow, MemoryTable
from outbox_core.stores.memory.stored import stored

if TYPE_CHECKING:
    from outbox_core.stores.memory.store import MemoryStore
    from outbox_core.table import TableName

_WAIT_SECONDS: Final = 30.0
"""How long an insert waits for the transaction that wrote the same ``event_id``, like a lock_timeout."""


class MemoryTransaction:
    """An open transaction at READ COMMITTED. Not safe for concurrent use, like a connection."""

    def __init__(self, store: MemoryStore) -> None:
        self._database = store.database
        self._number = self._database.begin()
        self._began_at = self._database.clock()
        self._written: list[tuple[MemoryTable, MemoryRow]] = []
        self._locked: list[int] = []
        self._hinted: list[TableName] = []
        self._open = True
        self._ended = anyio.Event()

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """Undo what the block wrote when it raises; the transaction goes on."""
        written, hinted = len(self._written), len(self._hinted)
        try:
            yield
        except BaseException:
            for table, row in self._written[written:]:
                del table.writers[row.record.event_id]
            del self._written[written:], self._hinted[hinted:]
            raise

    def end(self, *, commit: bool) -> None:
        """Commit or roll back. Ending twice is an error."""
        if not self._open:
            raise NotInTransaction("this in-memory transaction has already ended")
        self._open = False
        for table, row in self._written:
            del table.writers[row.record.event_id]
            if commit:
                table.rows[row.record.event_id] = row
        for key in self._locked:
            del self._database.locks[key]
        self._database.end(self._number)
        self._ended.set()
        if commit:
            for name in dict.fromkeys(self._hinted):
                self._database.notify(name)

    async def is_open(self) -> bool:
        return self._open

    async def insert(
        self, table: TableName, records: Sequence[NewRecord], *, lock_keys: Sequence[int], hint: bool
    ) -> list[int] | None:
        if not self._open:
            raise NotInTransaction("this in-memory transaction has already ended")
        for key in lock_keys:
            await self._lock(key)
        if hint:
            self._hinted.append(table)
        memory = self._database.table(table)
        numbered = [(record, memory.draw()) for record in records]
        collided = False
        for record, sequence in sorted(numbered, key=lambda pair: pair[0].event_id):
            if await self._is_taken(memory, record.event_id):
                collided = True
                continue
            now = self._database.clock()
            due = max(
                now + timedelta(microseconds=record.delay_microseconds or 0), record.available_at or now
            )
            memory.writers[record.event_id] = self
            self._written.append((memory, MemoryRow(record, sequence, self._began_at, due)))
        return None if collided else [sequence for _, sequence in numbered]

    async def existing(self, table: TableName, event_ids: Sequence[UUID]) -> list[Existing]:
        wanted = set(event_ids)
        return [
            Existing(row.record.event_id, row.sequence, row.record.digest)
            for row in self._visible(table)
            if row.record.event_id in wanted
        ]

    async def get(self, table: TableName, event_id: UUID, *, payload: bool) -> StoredMessage | None:
        found = (row for row in self._visible(table) if row.record.event_id == event_id)
        return next((stored(row, payload=payload) for row in found), None)

    async def count(self, table: TableName, *, tenant_id: UUID | None, state: State | None) -> int:
        return sum(
            (tenant_id is None or row.record.tenant_id == tenant_id) and (state is None or row.state is state)
            for row in self._visible(table)
        )

    async def pending(
        self, table: TableName, *, tenant_id: UUID | None, limit: int, payload: bool
    ) -> list[StoredMessage]:
        waiting = [row for row in self._visible(table) if row.state in (State.PENDING, State.IN_FLIGHT)]
        if tenant_id is None:
            waiting.sort(key=lambda row: (row.available_at, row.sequence))
        else:
            waiting = [row for row in waiting if row.record.tenant_id == tenant_id]
            waiting.sort(key=lambda row: row.sequence)
        return [stored(row, payload=payload) for row in waiting[:limit]]

    def _visible(self, table: TableName) -> list[MemoryRow]:
        memory = self._database.table(table)
        return [*memory.rows.values(), *(row for written, row in self._written if written is memory)]

    async def _is_taken(self, memory: MemoryTable, event_id: UUID) -> bool:
        """Whether an id is in use; waits for another transaction that has written it to end one way or the other."""
        while (writer := memory.writers.get(event_id)) is not None and writer is not self:
            await writer.wait_until_ended()
        return writer is self or event_id in memory.rows

    async def _lock(self, key: int) -> None:
        while (holder := self._database.locks.get(key)) is not None and holder is not self:
            await holder.wait_until_ended()
        if holder is None:
            self._database.locks[key] = self
            self._locked.append(key)

    async def wait_until_ended(self) -> None:
        """Wait for this transaction to commit or roll back, 30 s at most."""
        with anyio.fail_after(_WAIT_SECONDS):
            await self._ended.wait()


def transaction(tx: MemoryTransaction) -> MemoryTransaction:
    """Adapt a transaction for `Outbox`: it is one already."""
    return tx
