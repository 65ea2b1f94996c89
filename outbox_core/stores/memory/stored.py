"""Rows in memory as an application reads them back."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING

from outbox_core.record import StoredMessage

if TYPE_CHECKING:
    from outbox_core.stores.memory.database import MemoryRow


def stored(row: MemoryRow, *, payload: bool) -> StoredMessage:
    """A row as an application reads it back, with payload and headers if asked for."""
    record = row.record
    wire = record.payload.encode() if record.payload is not None else record.body
    headers = record.headers if payload else None
    return StoredMessage(
        sequence=row.sequence,
        event_id=record.event_id,
        tenant_id=record.tenant_id,
        topic=record.topic,
        key=record.key,
        state=row.state,
        attempts=row.attempts,
        replays=row.replays,
        created_at=row.created_at,
        available_at=row.available_at,
        published_at=row.published_at,
        dead_at=row.dead_at,
        last_error=row.last_error,
        headers=None if headers is None else MappingProxyType(json.loads(headers)),
        payload=wire if payload else None,
        content_type=record.content_type or "application/json",
    )
