"""The data that a database server would hold: rows, locks, transactions under way, leaderships, listeners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from outbox_core.identifiers import uuid7
from outbox_core.record import NewRecord, State

if TYPE_CHECKING:
    from outbox_core.letters import AuditRecord
    from outbox_core.store import KeyId
    from outbox_core.stores.memory.transaction import MemoryTransaction
    from outbox_core.table import TableName


@dataclass(slots=True)
class MemoryRow:
    """One row; the columns that change are those that change in the database."""

    record: NewRecord
    sequence: int
    created_at: datetime
    available_at: datetime
    published_at: datetime | None = None
    dead_at: datetime | None = None
    locked_at: datetime | None = None
    lock_token: UUID | None = None
    attempts: int = 0
    replays: int = 0
    last_error: str | None = None
    id: UUID = field(default_factory=uuid7)

    @property
    def state(self) -> State:
        if self.dead_at is not None:
            return State.DEAD
        if self.published_at is not None:
            return State.PUBLISHED
        return State.PENDING if self.lock_token is None else State.IN_FLIGHT

    @property
    def key_id(self) -> KeyId | None:
        key = self.record.key
        return None if key is None else (self.record.tenant_id, key)

    def is_due(self, now: datetime, lock_ttl: timedelta) -> bool:
        """True if a claim may lease it: unresolved, due, and under no lease that is still valid."""
        return (
            self.published_at is None
            and self.dead_at is None
            and self.available_at <= now
            and (self.locked_at is None or self.locked_at < now - lock_ttl)
        )

    @property
    def is_recovered(self) -> bool:
        """True if an earlier lease ended without an outcome, and no attempt has had one since."""
        return self.last_error is not None and self.last_error.startswith("TX.LEASE ")

    def lease(self, token: UUID, now: datetime) -> None:
        if self.locked_at is not None:
            self.last_error = "TX.LEASE the lease before ended without an outcome"
        self.locked_at, self.lock_token = now, token
        self.attempts += 1

    def unlock(self) -> None:
        self.locked_at = self.lock_token = None


@dataclass(slots=True)
class MemoryTable:
    """The committed rows by ``event_id``, and the transactions that hold an id which is not committed yet."""

    rows: dict[UUID, MemoryRow] = field(default_factory=dict[UUID, MemoryRow])
    writers: dict[UUID, MemoryTransaction] = field(default_factory=dict[UUID, "MemoryTransaction"])
    drawn: int = 0
    audit: dict[UUID, AuditRecord] = field(default_factory=dict[UUID, "AuditRecord"])

    def draw(self) -> int:
        self.drawn += 1
        return self.drawn

    def leased(self, token: UUID) -> list[MemoryRow]:
        """The rows that one claim has leased and still holds."""
        return [row for row in self.rows.values() if row.lock_token == token]

    def of_key(self, key_id: KeyId) -> list[MemoryRow]:
        """The unpublished rows of a key, dead ones included, lowest sequence first."""
        found = [row for row in self.rows.values() if row.published_at is None and row.key_id == key_id]
        found.sort(key=lambda row: row.sequence)
        return found


@dataclass(slots=True)
class Leadership:
    """The leader of a table. ``session`` is None while there is none; the term only ever grows."""

    term: int = 0
    session: object | None = None
    heartbeat_at: datetime | None = None


class MemoryDatabase:
    """Shared by the stores that are clients of the same data."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.clock = clock
        self.locks: dict[tuple[TableName, KeyId], MemoryTransaction] = {}
        self.running: set[int] = set()
        self.listeners: dict[object, Callable[[TableName | None], None]] = {}
        self._tables: dict[TableName, MemoryTable] = {}
        self._leaderships: dict[TableName, Leadership] = {}
        self._last_transaction = 0

    def table(self, name: TableName) -> MemoryTable:
        return self._tables.setdefault(name, MemoryTable())

    def leadership(self, name: TableName) -> Leadership:
        return self._leaderships.setdefault(name, Leadership())

    def begin(self) -> int:
        """A new transaction's number. It counts as running until `end`."""
        self._last_transaction += 1
        self.running.add(self._last_transaction)
        return self._last_transaction

    def end(self, number: int) -> None:
        self.running.discard(number)

    def notify(self, table: TableName) -> None:
        """A transaction with a wake-up hint has committed."""
        for callback in list(self.listeners.values()):
            callback(table)

    def end_session(self, session: object) -> None:
        """The session's locks and its listener are gone with it, as when a server sees a connection end."""
        self.listeners.pop(session, None)
        for leadership in self._leaderships.values():
            if leadership.session is session:
                leadership.session = leadership.heartbeat_at = None
