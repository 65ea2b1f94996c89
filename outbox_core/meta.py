"""What a dispatcher and a consumer receive. Made for every row a relay claims, so nothing here is checked again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Meta:
    """Everything about a message but its content; the same on every attempt, save ``attempts`` and ``replays``."""

    table: str
    """The outbox table the message was written to, as ``schema.name``."""
    tenant_id: UUID
    """The nil UUID when the application has no tenants."""
    topic: str
    event_id: UUID
    """The idempotency key: the same for every delivery of this message."""
    sequence: int
    """The row's place in its table: a cursor for people and tools, not a business order."""
    attempts: int
    """Deliveries begun, this one included, since the message was written or last replayed."""
    replays: int
    key: str | None
    """The ordering key, if it has one."""
    headers: Mapping[str, str] = field(repr=False)
    """The user's own headers; left out of ``repr``, because they may hold credentials."""
    created_at: datetime
    """By the database's clock, and not after the message was due; in PostgreSQL when the transaction that wrote it
    began."""
    traceparent: str | None = None
    tracestate: str | None = None


@dataclass(frozen=True, slots=True)
class DispatchedMessage:
    """A message on its way: its metadata and the bytes for the wire, which a relay never decodes.

    JSON keeps its meaning, not its bytes (PostgreSQL reorders keys); a ``body`` arrives untouched. The payload is left
    out of ``repr``, so that a logged message does not show it.
    """

    meta: Meta
    payload: bytes = field(repr=False)
    content_type: str

    def json(self) -> Any:
        """The payload parsed as JSON, anew on each call; decimals that were encoded as strings stay strings."""
        return json.loads(self.payload)
