"""Render a message as a Kafka record, and read it back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from outbox_core.adapter.destination import InvalidDestination
from outbox_core.adapter.record import body_of, part_of
from outbox_core.adapter.wire import Dialect, from_wire, to_wire
from outbox_core.errors import NotAnOutboxMessage, UnsupportedRecord
from outbox_core.headers import EVENT_ID

if TYPE_CHECKING:
    from outbox_core.adapter.cloud_events import CloudEvents
    from outbox_core.message import DispatchedMessage

DIALECT: Final = Dialect("ce_")
MAX_TOPIC_CHARACTERS: Final = 249

_RECORD: Final = "a record as aiokafka's consumer gives it"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")


class WireMessage(NamedTuple):
    """A message as aiokafka takes it."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


class Record(Protocol):
    """The attributes that are read of a record, as in aiokafka's ``ConsumerRecord``."""

    @property
    def headers(self) -> Iterable[tuple[str, bytes | None]]: ...

    @property
    def value(self) -> bytes | None: ...


def render(message: DispatchedMessage, events: CloudEvents | None, *, key_by_event_id: bool) -> WireMessage:
    """The key, the value and the headers. The key is the ordering key, or the event id of a message without one."""
    wire = to_wire(message, events, DIALECT)
    meta = message.meta
    key = wire.headers[EVENT_ID] if meta.key is None or key_by_event_id else meta.key
    return WireMessage(
        key.encode(), wire.body, [(name, value.encode()) for name, value in wire.headers.items()]
    )


def from_record(record: Record) -> DispatchedMessage:
    """The message as it was dispatched, from a record that a consumer received, plain or as a CloudEvent.

    Headers from other sources become user headers. Raises `outbox_core.errors.NotAnOutboxMessage` when the library's
    own headers are missing or unreadable, and `outbox_core.errors.UnsupportedRecord` for an object of another kind.
    """
    if part_of(record, "value", expected=_RECORD) is None:
        raise NotAnOutboxMessage("it has no value (a tombstone)")
    body = body_of(record, "value", expected=_RECORD, hint="; leave value_deserializer out of the consumer")
    pairs: Any = part_of(record, "headers", expected=_RECORD)
    try:
        headers: dict[str, object] = {str(name): b"" if value is None else value for name, value in pairs}
    except (TypeError, ValueError):
        raise UnsupportedRecord(_RECORD, record, "its headers are not pairs of a name and a value") from None
    return from_wire(headers, body, DIALECT)


def check_topic_name(value: object) -> str:
    """The value, if Kafka takes it as a topic's name. Raises `InvalidDestination` with the broken rule."""
    if not isinstance(value, str):
        raise InvalidDestination(f"a topic's name must be a str, got {type(value).__name__}")
    if not 0 < len(value) <= MAX_TOPIC_CHARACTERS:
        raise InvalidDestination(f"a topic's name has from 1 to {MAX_TOPIC_CHARACTERS} characters")
    if _TOPIC.fullmatch(value) is None or value in (".", ".."):
        raise InvalidDestination(
            "a topic's name has ASCII letters, digits, '.', '_' and '-', and is neither '.' nor '..'"
        )
    return value
