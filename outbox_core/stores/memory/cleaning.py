"""Cleaning of a table in memory: which rows a batch may delete."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from outbox_core.admin_store import Cleanable, CleanedBatch, CleaningBatch
from outbox_core.status import Count
from outbox_core.stores.memory.selection import moment_of

if TYPE_CHECKING:
    from outbox_core.stores.memory.database import MemoryRow, MemoryTable


def clean(memory: MemoryTable, batch: CleaningBatch, now: datetime, *, published: bool) -> CleanedBatch:
    """Delete one batch, oldest first."""
    page = [
        each for each in _old(memory, now, batch.older_than, published=published) if each[:2] > batch.since
    ]
    page = page[: batch.limit]
    gone = [row for _, _, row in page if published or not _blocks(memory, row)]
    for row in gone:
        del memory.rows[row.record.event_id]
    last = page[-1][:2] if page else None
    return CleanedBatch(busy=False, deleted=len(gone), last=last, complete=len(page) < batch.limit)


def cleanable(
    memory: MemoryTable, now: datetime, *, retention: float, dead_retention: float | None, limit: int
) -> Cleanable:
    """Count what batches with these retentions would delete in all."""
    published = _old(memory, now, retention, published=True)
    dead = [] if dead_retention is None else _old(memory, now, dead_retention, published=False)
    dead = [each for each in dead if not _blocks(memory, each[2])]
    oldest = min((each[0] for each in (*published, *dead)), default=None)
    return Cleanable(Count.up_to(limit, len(published)), Count.up_to(limit, len(dead)), oldest)


def _old(
    memory: MemoryTable, now: datetime, older_than: float, *, published: bool
) -> list[tuple[datetime, int, MemoryRow]]:
    moment, limit = moment_of(published=published), now - timedelta(seconds=older_than)
    found = [
        (at, row.sequence, row)
        for row in memory.rows.values()
        if (at := moment(row)) is not None and at < limit
    ]
    return sorted(found, key=lambda each: each[:2])


def _blocks(memory: MemoryTable, row: MemoryRow) -> bool:
    """True when an unresolved message of its key comes after the row."""
    behind = () if row.key_id is None else memory.of_key(row.key_id)
    return any(each.dead_at is None and each.sequence > row.sequence for each in behind)
