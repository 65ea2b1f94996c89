"""What a message says, boiled down to a digest: by its writer when it is written, and from what a broker has of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outbox_core.headers import (
    ATTEMPTS,
    CONTENT_TYPE,
    EVENT_ID,
    KEY,
    SEQUENCE,
    TABLE,
    TENANT_ID,
    TOPIC,
    WIRE_HEADERS,
)
from outbox_core.message import Message

JSON = "application/json"
NAMELESS = "a message without an event id"
_OF_BROKERS = ("nats-", "x-delivery-count", "x-acquired-count")
"""How headers begin that clients and brokers add on the way."""
_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class Content:
    """All that a writer gave, and the place in the table that it was told. JSON keeps its meaning, bytes stay."""

    table: str
    event_id: str
    tenant_id: str
    topic: str
    key: str | None
    sequence: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str = JSON
    body: bytes = b""

    def digest(self) -> str:
        body = json.loads(self.body) if self.content_type == JSON else self.body.hex()
        parts = [
            self.table, self.event_id, self.tenant_id, self.topic, self.key, self.sequence,
            dict(self.headers), self.content_type, body,
        ]  # fmt: skip
        text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:_CHARACTERS]


def of_message(message: Message, table: str, sequence: int) -> Content:
    """What a writer has just enqueued."""
    written = message.body is not None
    return Content(
        table=table,
        event_id=str(message.event_id),
        tenant_id=str(message.tenant_id),
        topic=message.topic,
        key=message.key,
        sequence=str(sequence),
        headers=message.headers,
        content_type=message.content_type or JSON,
        body=(message.body or b"") if written else json.dumps(message.payload).encode(),
    )


def of_record(headers: Mapping[str, str], body: bytes) -> Content:
    """What a broker has, read by the names of headers alone; what is missing is empty."""
    return Content(
        table=headers.get(TABLE, ""),
        event_id=headers.get(EVENT_ID, NAMELESS),
        tenant_id=headers.get(TENANT_ID, ""),
        topic=headers.get(TOPIC, ""),
        key=headers.get(KEY),
        sequence=headers.get(SEQUENCE, ""),
        headers={
            name: value
            for name, value in headers.items()
            if name not in WIRE_HEADERS and not name.lower().startswith(_OF_BROKERS)
        },
        content_type=headers.get(CONTENT_TYPE, ""),
        body=body,
    )


def digest_of(headers: Mapping[str, str], body: bytes, **expected: tuple[Any, Any]) -> str:
    """The digest of what a broker has.

    ``expected`` are places that only this broker has, each with what is there and what should be: a difference is
    part of the answer, which then is no writer's digest. So is a body that cannot be read, or a count that is none.
    """
    wrong = [name for name, (found, meant) in expected.items() if found != meant]
    if not headers.get(ATTEMPTS, "").isdigit() or headers[ATTEMPTS] == "0":
        wrong.append(ATTEMPTS)
    try:
        digest = of_record(headers, body).digest()
    except ValueError:
        return "its body is no JSON"
    return f"{digest} but for its {', '.join(wrong)}" if wrong else digest
