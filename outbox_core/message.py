"""Messages: what the application enqueues, checked when made, so that nothing wrong reaches the database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Final
from uuid import UUID

from outbox_core.encoding import JsonText, check_encoded, encode_json
from outbox_core.errors import InvalidKey, MessageError
from outbox_core.headers import (
    MAX_CONTENT_TYPE_CHARACTERS,
    MAX_KEY_BYTES,
    NO_HEADERS,
    Headers,
    is_media_type,
    unsafe_character,
)
from outbox_core.identifiers import uuid7
from outbox_core.meta import DispatchedMessage, Meta
from outbox_core.topic import check_topic
from outbox_core.trace import accept_trace

__all__ = [
    "ABSENT",
    "JSON_CONTENT_TYPE",
    "NIL_UUID",
    "DispatchedMessage",
    "Message",
    "Meta",
    "check_uuid",
    "digest",
]

NIL_UUID: Final = UUID(int=0)
JSON_CONTENT_TYPE: Final = "application/json"
MAX_DELAY: Final = timedelta(days=3660)


class Absent(Enum):
    """The type of `ABSENT`, which stands where no payload was given, since None is a payload (JSON null)."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


@dataclass(frozen=True, slots=True)
class Message:
    """A message to enqueue: a topic, and either a JSON ``payload`` or a ``body`` of bytes with its ``content_type``.

    ``payload`` is any value the outbox's ``encode`` takes: a ``str`` is a JSON string and None is JSON null; text that
    is already JSON goes through `from_json`. It is encoded, and its size checked, when the message is enqueued.
    Payload, body and headers are left out of ``repr``.

    Everything else is checked here: what is wrong raises `MessageError`, or the subclass for its field.
    """

    topic: str
    payload: object = field(default=ABSENT, repr=False)
    _: KW_ONLY
    body: bytes | None = field(default=None, repr=False)
    """Bytes that must not change on the way: Avro, Protobuf, signed text."""
    content_type: str | None = None
    """The media type of ``body``; a payload's is always ``application/json``, and is not given here."""
    tenant_id: UUID = NIL_UUID
    """The nil UUID when the application has no tenants."""
    event_id: UUID = field(default_factory=uuid7)
    """The idempotency key; a fresh UUIDv7 by default. Enqueueing the same one again writes nothing new."""
    key: str | None = None
    """The ordering key: messages of a tenant with the same key are delivered one after the other. At most 1024 bytes
    of UTF-8, one line, without white space around it, since it travels as a header."""
    headers: Mapping[str, str] = field(default=NO_HEADERS, repr=False)
    """The application's own headers, copied into an immutable `Headers`."""
    available_at: datetime | None = None
    """Not to be delivered before this moment, which must have a time zone."""
    delay: timedelta | None = None
    """Not to be delivered before this long after it is enqueued, by the database's clock; ten years at most."""
    traceparent: str | None = None
    """W3C trace context. A malformed one is dropped and counted (`dropped_traces`), never refused."""
    tracestate: str | None = None

    def __post_init__(self) -> None:
        _set_text(self, "topic", check_topic(self.topic))
        _check_content(self)
        check_uuid("tenant_id", self.tenant_id)
        check_uuid("event_id", self.event_id)
        if self.event_id == NIL_UUID:
            raise MessageError(
                "event_id is the nil UUID, which identifies nothing; leave it out for a fresh UUIDv7"
            )
        if self.key is not None:
            _set_text(self, "key", _check_key(self.key))
        if not isinstance(self.headers, Headers):
            object.__setattr__(self, "headers", Headers(self.headers))
        if self.available_at is not None or self.delay is not None:
            _check_time(self.available_at, self.delay)
        if self.traceparent is not None or self.tracestate is not None:
            traceparent, tracestate = accept_trace(self.traceparent, self.tracestate)
            object.__setattr__(self, "traceparent", traceparent)
            object.__setattr__(self, "tracestate", tracestate)

    @classmethod
    def from_json(
        cls,
        topic: str,
        text: str,
        *,
        tenant_id: UUID = NIL_UUID,
        event_id: UUID | None = None,
        key: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        available_at: datetime | None = None,
        delay: timedelta | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Message:
        """A message whose payload is text that is already JSON: checked, then kept as it is instead of encoded."""
        return cls(
            topic,
            JsonText(text),
            tenant_id=tenant_id,
            event_id=uuid7() if event_id is None else event_id,
            key=key,
            headers=headers,
            available_at=available_at,
            delay=delay,
            traceparent=traceparent,
            tracestate=tracestate,
        )

    def json_text(self, encode: Callable[[object], str] = encode_json) -> str | None:
        """The payload as JSON text, or None when the message has a body. Raises `EncodingError`, naming the place."""
        if self.body is not None:
            return None
        if isinstance(self.payload, JsonText):
            return self.payload.text
        return encode_json(self.payload) if encode is encode_json else check_encoded(encode(self.payload))


def digest(topic: str, tenant_id: UUID, key: str | None, content_type: str | None, encoded: bytes) -> bytes:
    """SHA-256 of what makes two messages with one ``event_id`` the same; ``content_type`` is None for a JSON payload.

    Each part is preceded by its length, or by a mark that it is absent, so different parts never make the same
    bytes. Digests are stored: what this returns for the same arguments never changes.
    """
    framed = (
        _framed_start(topic, tenant_id),
        _framed(key),
        _framed(content_type),
        b"\x01",
        _length(encoded),
        encoded,
    )
    return hashlib.sha256(b"".join(framed)).digest()


@lru_cache(maxsize=256)
def _framed_start(topic: str, tenant_id: UUID) -> bytes:
    """What messages of one topic and tenant begin with: they come again and again."""
    return _framed(topic) + b"\x01" + _length(tenant_id.bytes) + tenant_id.bytes


def _framed(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    encoded = text.encode()
    return b"\x01" + _length(encoded) + encoded


def _length(part: bytes) -> bytes:
    return len(part).to_bytes(8, "big")


def _set_text(message: Message, name: str, text: str) -> None:
    """Make a plain str of a subclass such as a StrEnum, which database drivers and brokers treat in their own ways."""
    if type(text) is not str:
        object.__setattr__(message, name, str.__str__(text))


def _check_content(message: Message) -> None:
    body: object = message.body
    content_type: object = message.content_type
    if body is None:
        if message.payload is ABSENT:
            raise MessageError(
                "a message needs a payload, or a body with its content_type; for JSON null write payload=None"
            )
        if content_type is not None:
            raise MessageError(
                f"content_type belongs to body=; a payload is always {JSON_CONTENT_TYPE}."
                " Send the encoded bytes as body= to give them another type"
            )
        return
    if message.payload is not ABSENT:
        raise MessageError("a message has either a payload or a body, not both")
    if not isinstance(body, bytes):
        hint = "; wrap it in bytes()" if isinstance(body, bytearray | memoryview) else ""
        hint = "; encode it, or pass it as the payload" if isinstance(body, str) else hint
        raise MessageError(f"body must be bytes, got {type(body).__name__}{hint}")
    if content_type is None:
        raise MessageError("a body needs its content_type, such as 'application/avro'")
    if not isinstance(content_type, str):
        raise MessageError(f"content_type must be a str, got {type(content_type).__name__}")
    if len(content_type) > MAX_CONTENT_TYPE_CHARACTERS:
        raise MessageError(
            f"content_type has {len(content_type)} characters and at most {MAX_CONTENT_TYPE_CHARACTERS} are allowed"
        )
    if not is_media_type(content_type):
        raise MessageError(
            f"content_type {content_type!r} is not a media type,"
            " such as 'application/avro' or 'text/plain; charset=utf-8'"
        )


def check_uuid(name: str, value: object) -> None:
    """Refuse what is not a ``UUID``; ``name`` is the field or argument that has it."""
    if not isinstance(value, UUID):
        hint = "; convert it with UUID()" if isinstance(value, str) else ""
        raise MessageError(f"{name} must be a UUID, got {type(value).__name__}{hint}")


def _check_key(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidKey(value, f"expected a str or None, got {type(value).__name__}; convert it with str()")
    if not value:
        raise InvalidKey(value, "it is empty; leave it out when the message has no order to keep")
    if len(value) > MAX_KEY_BYTES:
        raise InvalidKey(
            value, f"it has {len(value)} characters and at most {MAX_KEY_BYTES} bytes are allowed"
        )
    unsafe = unsafe_character(value)
    if unsafe is not None:
        raise InvalidKey(value, f"it has {unsafe}; it travels as a header, which is one line of text")
    if value != value.strip():
        raise InvalidKey(
            value, "it begins or ends with white space, which NATS strips from headers on the way"
        )
    size = len(value.encode())
    if size > MAX_KEY_BYTES:
        raise InvalidKey(value, f"it has {size} bytes in UTF-8 and at most {MAX_KEY_BYTES} are allowed")
    return value


def _check_time(available_at: object, delay: object) -> None:
    if available_at is not None and delay is not None:
        raise MessageError("give either available_at (a moment) or delay (a duration), not both")
    if delay is not None:
        if not isinstance(delay, timedelta):
            raise MessageError(
                f"delay must be a timedelta, got {type(delay).__name__}; write timedelta(seconds=…)"
            )
        if not timedelta(0) <= delay <= MAX_DELAY:
            raise MessageError(f"delay is {delay} and must be from 0 to {MAX_DELAY.days} days")
        return
    if not isinstance(available_at, datetime):
        raise MessageError(f"available_at must be a datetime, got {type(available_at).__name__}")
    if available_at.utcoffset() is None:
        raise MessageError(
            f"available_at {available_at} is naive, so nobody can tell which moment it means; give it a tzinfo"
        )
    try:
        available_at.astimezone(UTC)
    except OverflowError:
        raise MessageError(f"available_at {available_at} is outside the years 1 to 9999 in UTC") from None
