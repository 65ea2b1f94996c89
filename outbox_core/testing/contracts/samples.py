"""Messages as a relay would hand them to a dispatcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

from outbox_core.identifiers import uuid7
from outbox_core.message import JSON_CONTENT_TYPE, DispatchedMessage, Meta

TENANT = UUID("6f1d1a4e-6a1f-4c57-9d6c-2f0f5f9f1c11")


def sample(
    topic: str,
    payload: bytes = b'{"number": 1}',
    *,
    content_type: str = JSON_CONTENT_TYPE,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    sequence: int = 1,
    traceparent: str | None = None,
    tracestate: str | None = None,
) -> DispatchedMessage:
    """A message on its first attempt, with an ``event_id`` of its own."""
    meta = Meta(
        table="public.contract_outbox",
        tenant_id=TENANT,
        topic=topic,
        event_id=uuid7(),
        sequence=sequence,
        attempts=1,
        replays=0,
        key=key,
        headers=dict(headers or {}),
        created_at=datetime.now(UTC),
        traceparent=traceparent,
        tracestate=tracestate,
    )
    return DispatchedMessage(meta, payload, content_type)


def samples(topic: str, count: int, *, keys: int = 0) -> list[DispatchedMessage]:
    """Numbered messages, their keys in turn; without keys when ``keys`` is 0."""
    return [
        sample(
            topic,
            b'{"number": %d}' % number,
            key=f"key-{number % keys}" if keys else None,
            sequence=number,
        )
        for number in range(1, count + 1)
    ]


def again(message: DispatchedMessage) -> DispatchedMessage:
    """The same message on its next attempt."""
    return replace(message, meta=replace(message.meta, attempts=message.meta.attempts + 1))


def password() -> str:
    """A password that occurs nowhere by chance."""
    return f"pw{uuid4().hex}"
