"""Rows of an outbox table as the application sees them: what is about to be written, and what is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID


class State(StrEnum):
    """Where a message is. Every row is in exactly one of these; the table's CHECK constraints see to it."""

    PENDING = "pending"
    """Waiting to be claimed: new, delayed, or put off after a failure."""
    IN_FLIGHT = "in_flight"
    """Claimed by a relay under a lease."""
    PUBLISHED = "published"
    """Acknowledged by the broker."""
    DEAD = "dead"
    """Given up; stays until somebody replays or discards it."""


class NewRecord(NamedTuple):
    """A validated, encoded message, ready to be written. A tuple, because one is made for every message."""

    event_id: UUID
    tenant_id: UUID
    topic: str
    key: str | None
    payload: str | None
    body: bytes | None
    content_type: str | None
    headers: str | None
    traceparent: str | None
    tracestate: str | None
    digest: bytes
    delay_microseconds: int | None
    available_at: datetime | None


@dataclass(frozen=True, slots=True)
class Existing:
    """The row that already has an ``event_id``: enough to tell the same message from another one, and no more."""

    event_id: UUID
    sequence: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A row read back. ``payload`` is the bytes for the wire; it and ``headers`` are None when not asked for."""

    sequence: int
    event_id: UUID
    tenant_id: UUID
    topic: str
    key: str | None
    state: State
    attempts: int
    replays: int
    created_at: datetime
    available_at: datetime
    published_at: datetime | None
    dead_at: datetime | None
    last_error: str | None
    headers: Mapping[str, str] | None
    payload: bytes | None
    content_type: str
