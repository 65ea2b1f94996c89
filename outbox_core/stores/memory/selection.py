"""The rows that a filter selects, and their order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from outbox_core.store import BEGINNING
from outbox_core.topic import TopicPattern

if TYPE_CHECKING:
    from outbox_core.letters import Filter, LetterPlace
    from outbox_core.stores.memory.database import MemoryRow, MemoryTable

Moment: TypeAlias = Callable[["MemoryRow"], datetime | None]
"""The time at which a row got into the selected state; None while it is in another."""


def moment_of(*, published: bool) -> Moment:
    """Reads when a row was published, or dead-lettered."""
    return (lambda row: row.published_at) if published else (lambda row: row.dead_at)


def code_of(row: MemoryRow) -> str:
    """The error code that ``last_error`` begins with."""
    return (row.last_error or "").partition(" ")[0] or "UNKNOWN.ERROR"


def selected(
    memory: MemoryTable,
    wanted: Filter,
    moment: Moment,
    *,
    after: LetterPlace = BEGINNING,
    until: datetime | None = None,
) -> list[MemoryRow]:
    """The rows that a filter selects, behind a position and no later than ``until``, in the order of their moments."""
    pattern = None if wanted.topic is None else TopicPattern.parse(wanted.topic)
    ids = None if wanted.event_ids is None else set(wanted.event_ids)
    found: list[tuple[datetime, int, MemoryRow]] = []
    for row in memory.rows.values():
        at = moment(row)
        if (
            at is not None
            and (at, row.sequence) > after
            and (until is None or at <= until)
            and (wanted.since is None or at >= wanted.since)
            and (wanted.until is None or at < wanted.until)
            and (pattern is None or pattern.matches(row.record.topic))
            and (wanted.tenant_id is None or row.record.tenant_id == wanted.tenant_id)
            and (wanted.code is None or code_of(row) == wanted.code)
            and (ids is None or row.record.event_id in ids)
        ):
            found.append((at, row.sequence, row))
    return [row for _, _, row in sorted(found, key=lambda each: each[:2])]
