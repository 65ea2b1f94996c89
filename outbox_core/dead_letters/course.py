"""Carries a plan out, batch by batch. How far it has got is in the audit alone, so it can go on after any failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from outbox_core.dead_letters.outcome import Outcome
from outbox_core.errors import PlanMismatch, StorageTimeout, StorageUnavailable

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_core.admin_store import AdminStore
    from outbox_core.letters import AuditRecord
    from outbox_core.table import TableName

Progress: TypeAlias = Callable[["AuditRecord"], None]

_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.2
_OTHERS_TURN_SECONDS: Final = 0.02


async def carry_out(
    admin_store: AdminStore, table: TableName, record: AuditRecord, progress: Progress | None
) -> Outcome:
    """Go on from where the record says until the plan is finished.

    Several may do so at once: each batch is one's alone. Trouble with the database is tried again a few times, then
    raised; what was done until then is on record.
    """
    before = record.changed
    failures = 0
    while record.finished_at is None:
        try:
            advanced = await admin_store.advance(table, record)
            failures = 0
            if advanced is None:
                # Somebody else has done, or is doing, this batch; or an answer was lost and this very call did it.
                await anyio.sleep(_OTHERS_TURN_SECONDS)
                advanced = await recorded(admin_store, table, record.id)
            record = advanced
        except (StorageTimeout, StorageUnavailable):
            failures += 1
            if failures >= _TRIES:
                raise
            await anyio.sleep(_PAUSE_SECONDS * failures)
            continue
        if progress is not None:
            progress(record)
        await anyio.lowlevel.checkpoint()
    return Outcome(record, record.changed - before)


async def recorded(admin_store: AdminStore, table: TableName, audit_id: UUID) -> AuditRecord:
    """The audit's record, which is expected to be there."""
    record = await admin_store.audit(table, audit_id)
    if record is None:
        raise PlanMismatch(f"the audit of {table} has no record {audit_id}")
    return record
