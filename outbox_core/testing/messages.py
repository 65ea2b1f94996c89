"""Messages as a test looks at them: one shape for what was enqueued and for what was delivered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from outbox_core.headers import NO_HEADERS

if TYPE_CHECKING:
    from outbox_core.meta import DispatchedMessage
    from outbox_core.stores.memory import MemoryRow

JSON_CONTENT_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """``payload`` is the JSON value as a consumer decodes it, so a ``Decimal`` is text, or the bytes of a body.

    ``available_at`` is known of what was enqueued, and ``attempts`` counts dispatches up to now, failed ones included.
    """

    topic: str
    payload: Any
    key: str | None
    headers: Mapping[str, str]
    tenant_id: UUID
    event_id: UUID
    sequence: int
    content_type: str
    attempts: int
    available_at: datetime | None = None
    last_error: str | None = None


def of_row(row: MemoryRow) -> SeenMessage:
    """A row of the in-memory store."""
    record = row.record
    return SeenMessage(
        topic=record.topic,
        payload=record.body if record.payload is None else json.loads(record.payload),
        key=record.key,
        headers=NO_HEADERS if record.headers is None else json.loads(record.headers),
        tenant_id=record.tenant_id,
        event_id=record.event_id,
        sequence=row.sequence,
        content_type=record.content_type or JSON_CONTENT_TYPE,
        attempts=row.attempts,
        available_at=row.available_at,
        last_error=row.last_error,
    )


def of_dispatched(message: DispatchedMessage) -> SeenMessage:
    """A message as a dispatcher was given it."""
    meta = message.meta
    is_json = message.content_type == JSON_CONTENT_TYPE
    return SeenMessage(
        topic=meta.topic,
        payload=json.loads(message.payload) if is_json else message.payload,
        key=meta.key,
        headers=meta.headers,
        tenant_id=meta.tenant_id,
        event_id=meta.event_id,
        sequence=meta.sequence,
        content_type=message.content_type,
        attempts=meta.attempts,
    )
