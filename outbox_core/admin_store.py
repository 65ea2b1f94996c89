"""The contract of an admin store: cleaning, status, dead letters and their audit.

`outbox_core.store` is the contract relays use. A store that also offers an admin store is a `HasAdminStore`; a process
that only administers tables opens one without a relay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from uuid import UUID

from outbox_core.store import BEGINNING, Position

if TYPE_CHECKING:
    from outbox_core.letters import AuditRecord, Filter, Group, GroupBy, LetterPlace, Plan
    from outbox_core.record import StoredMessage
    from outbox_core.status import Count, Look, TableStatus
    from outbox_core.table import TableName


@dataclass(frozen=True, slots=True)
class CleaningBatch:
    """A batch to delete: at most ``limit`` rows after ``since`` that were resolved at least ``older_than`` s ago."""

    older_than: float
    limit: int
    since: Position = BEGINNING


@dataclass(frozen=True, slots=True)
class CleanedBatch:
    """The result of a batch. ``busy``: another cleaner works on this table, and nothing was done. ``last`` is the
    position of the last row read, None when there was none; ``complete``: no further row is old enough."""

    busy: bool
    deleted: int
    last: Position | None
    complete: bool


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The rows a cleaner would delete now. ``oldest`` is when the oldest of them was published, or died."""

    published: Count
    dead: Count
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Attribution:
    """The person behind a change and the reason, with the ``id`` of its record in the audit."""

    id: UUID
    actor: str
    reason: str


class Cleaning(Protocol):
    """Deletes resolved rows. Each batch is one atomic step by the store's clock, and one cleaner works on a table at a
    time. The age is checked again as each row is deleted; a row that is being replayed stays."""

    async def clean_published(self, table: TableName, batch: CleaningBatch) -> CleanedBatch:
        """Delete published rows, oldest first."""
        ...

    async def clean_dead(self, table: TableName, batch: CleaningBatch) -> CleanedBatch:
        """Delete dead rows, oldest first, except those that an unresolved message of the same key comes after."""
        ...


class Reporting(Protocol):
    """Reads figures of a table, all of one moment, at a cost that does not grow with the table."""

    async def status(self, table: TableName, look: Look) -> TableStatus:
        """Read the state of the table. Locks nothing, and nothing waits for it."""
        ...

    async def cleanable(
        self, table: TableName, *, retention: float, dead_retention: float | None, limit: int
    ) -> Cleanable:
        """Count what a cleaner with these retentions (s) would delete now; counts stop at ``limit``."""
        ...


@runtime_checkable
class AdminStore(Cleaning, Reporting, Protocol):
    """Administers outbox tables. Every method is one atomic step, bounded in time; `StorageError` means that the step
    did not happen, or may not have. Repeating a step is safe. Many tasks may share one admin store."""

    async def letters(
        self, table: TableName, wanted: Filter, *, after: LetterPlace | None, limit: int
    ) -> Sequence[StoredMessage]:
        """List dead letters by ``(dead_at, sequence)``, without payload and headers."""
        ...

    async def count(self, table: TableName, wanted: Filter) -> int:
        """Count dead letters."""
        ...

    async def group(self, table: TableName, wanted: Filter, by: GroupBy, limit: int) -> Sequence[Group]:
        """Group dead letters by what they have in common, the most frequent first."""
        ...

    async def show(self, table: TableName, event_id: UUID, *, content: bool) -> StoredMessage | None:
        """Read one message in any state. Payload and headers are not read without ``content``."""
        ...

    async def plan(
        self, table: TableName, plan_id: UUID, wanted: Filter, *, published: bool, windows: Sequence[float]
    ) -> tuple[Plan, Sequence[int]]:
        """Count what would change now, and for each of the ascending ``windows`` (s) how many messages are older."""
        ...

    async def begin(self, plan: Plan, by: Attribution, action: str, rate: float | None) -> None:
        """Record a plan before it is carried out; does nothing when it is recorded already."""
        ...

    async def audit(self, table: TableName, audit_id: UUID) -> AuditRecord | None:
        """Read one record of the audit."""
        ...

    async def history(self, table: TableName, *, unfinished: bool, limit: int) -> Sequence[AuditRecord]:
        """List the audit, newest first."""
        ...

    async def advance(self, table: TableName, record: AuditRecord) -> AuditRecord | None:
        """Carry out and record the next batch of a replay or discard; None when another caller has advanced it since
        ``record`` was read. Rows that have changed state since are left alone."""
        ...

    async def head(self, table: TableName, tenant_id: UUID, key: str) -> StoredMessage | None:
        """Read the first unresolved message of a key, without payload and headers. Replayed messages do not count."""
        ...

    async def release(
        self, table: TableName, by: Attribution, tenant_id: UUID, key: str
    ) -> tuple[AuditRecord, UUID | None]:
        """Replay the first unresolved message of a key if it is dead, make it due if it waits. Returns its id."""
        ...

    async def postpone(
        self,
        table: TableName,
        by: Attribution,
        event_ids: Sequence[UUID],
        *,
        until: datetime | None,
        delay: float,
    ) -> AuditRecord:
        """Reschedule pending messages to ``until``, or to ``delay`` seconds from now; never before now."""
        ...

    async def note_resume(self, table: TableName, by: Attribution, record: AuditRecord) -> None:
        """Record who resumes a replay or discard, and why: a finished record of its own, with ``{"resumes": id}`` as
        its filter and nothing changed."""
        ...

    async def note_clean(
        self, table: TableName, by: Attribution, wanted: Mapping[str, float], *, planned: int, changed: int
    ) -> None:
        """Record how many messages a manual clean-up has deleted so far; ``wanted`` are its retentions (s)."""
        ...


@runtime_checkable
class HasAdminStore(Protocol):
    """A store with an admin store that uses the same sessions."""

    @property
    def admin_store(self) -> AdminStore: ...
