"""What cleaning and looking after dead letters ask of a store, apart from what relays ask of it."""

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
class Sweep:
    """One batch of cleaning: at most ``limit`` rows behind ``since`` that have been resolved for ``older_than`` s."""

    older_than: float
    limit: int
    since: Position = BEGINNING


@dataclass(frozen=True, slots=True)
class Swept:
    """What became of a batch. ``busy``: another cleaner is at this table, and nothing was done. ``last`` is the place
    of the last row looked at, None when there was none; ``complete`` says that no further row is old enough."""

    busy: bool
    deleted: int
    last: Position | None
    complete: bool


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What a pass of a cleaner would delete now. ``oldest`` is when the oldest of it was published, or died."""

    published: Count
    dead: Count
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Order:
    """Who wants something done to messages, why, and under which id it is put on record."""

    id: UUID
    actor: str
    reason: str


class Cleaning(Protocol):
    """Each batch is one atomic step, one cleaner at a time per table, by the store's clock. The age is looked at again
    as each row is deleted, and a row that is being replayed stays."""

    async def clean_published(self, table: TableName, sweep: Sweep) -> Swept:
        """Delete published rows, oldest first."""
        ...

    async def clean_dead(self, table: TableName, sweep: Sweep) -> Swept:
        """Delete dead rows, oldest first, except those that an unresolved message of the same key comes after."""
        ...


class Reporting(Protocol):
    """Looking at a table at a bounded cost, whatever its size, from one moment of it."""

    async def status(self, table: TableName, look: Look) -> TableStatus:
        """How the table stands now. Nothing is locked and nothing waits for it."""
        ...

    async def cleanable(
        self, table: TableName, *, retention: float, dead_retention: float | None, limit: int
    ) -> Cleanable:
        """What a cleaner with these retentions (s) would delete now; counts stop at ``limit``."""
        ...


@runtime_checkable
class Upkeep(Cleaning, Reporting, Protocol):
    """Every method is one atomic step, bounded in time, and raises `StorageError` when it did not happen or may not
    have happened; repeating it is safe. Safe for use by many tasks."""

    async def letters(
        self, table: TableName, wanted: Filter, *, after: LetterPlace | None, limit: int
    ) -> Sequence[StoredMessage]:
        """Dead letters by ``(dead_at, sequence)``, without payload and headers."""
        ...

    async def count(self, table: TableName, wanted: Filter) -> int:
        """How many dead letters there are."""
        ...

    async def group(self, table: TableName, wanted: Filter, by: GroupBy, limit: int) -> Sequence[Group]:
        """Dead letters by what they have in common, the most frequent first."""
        ...

    async def show(self, table: TableName, event_id: UUID, *, content: bool) -> StoredMessage | None:
        """One message in whatever state; payload and headers are not even read unless they are asked for."""
        ...

    async def plan(
        self, table: TableName, plan_id: UUID, wanted: Filter, *, published: bool, windows: Sequence[float]
    ) -> tuple[Plan, Sequence[int]]:
        """What would change now, and for each of the ascending ``windows`` (s) how many messages are older."""
        ...

    async def begin(self, plan: Plan, order: Order, action: str, rate: float | None) -> None:
        """Put a plan on record before it is carried out; does nothing when it is there already."""
        ...

    async def audit(self, table: TableName, audit_id: UUID) -> AuditRecord | None:
        """One record of the audit."""
        ...

    async def history(self, table: TableName, *, unfinished: bool, limit: int) -> Sequence[AuditRecord]:
        """The audit, newest first."""
        ...

    async def advance(self, table: TableName, record: AuditRecord) -> AuditRecord | None:
        """Carry the next batch of a replay or discard out and record it, if nobody did so since ``record`` was read;
        otherwise None. Rows that have moved on are left alone."""
        ...

    async def head(self, table: TableName, tenant_id: UUID, key: str) -> StoredMessage | None:
        """The first unresolved message of a key, replayed ones aside, without payload and headers."""
        ...

    async def release(
        self, table: TableName, order: Order, tenant_id: UUID, key: str
    ) -> tuple[AuditRecord, UUID | None]:
        """Replay the first unresolved message of a key if it is dead, make it due if it waits; its ``event_id``."""
        ...

    async def postpone(
        self,
        table: TableName,
        order: Order,
        event_ids: Sequence[UUID],
        *,
        until: datetime | None,
        delay: float,
    ) -> AuditRecord:
        """Set when pending messages are due: ``until``, or ``delay`` seconds from now; never before now."""
        ...

    async def note_resume(self, table: TableName, order: Order, record: AuditRecord) -> None:
        """Put on record, as a finished record of its own with ``{"resumes": id}`` as its filter and nothing changed,
        who goes on with a replay or discard and why."""
        ...

    async def note_clean(
        self, table: TableName, order: Order, wanted: Mapping[str, float], *, planned: int, changed: int
    ) -> None:
        """Put on record how many messages a clean-up by hand has deleted so far; ``wanted`` are its retentions (s)."""
        ...


@runtime_checkable
class Kept(Protocol):
    """A store that offers its upkeep on the sessions it has."""

    @property
    def upkeep(self) -> Upkeep: ...
