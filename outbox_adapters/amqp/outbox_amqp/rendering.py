"""Render a message as an AMQP message, and read it back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from aio_pika import DeliveryMode
from aiormq import spec

from outbox_core.adapter.destination import InvalidDestination
from outbox_core.adapter.record import body_of, headers_of, part_of
from outbox_core.adapter.wire import Dialect, from_wire, to_wire
from outbox_core.headers import CONTENT_TYPE, EVENT_ID

if TYPE_CHECKING:
    from aio_pika.abc import AbstractMessage
    from pamqp.common import FieldValue

    from outbox_core.adapter.cloud_events import CloudEvents
    from outbox_core.message import DispatchedMessage

DIALECT: Final = Dialect("ce-")
MAX_NAME_BYTES: Final = 255
"""The longest AMQP short string."""

_MESSAGE: Final = "one message as aio-pika gives it to a consumer"
_ADDED_BY_THE_BROKER: Final = re.compile(
    r"x-(?:death|delivery-count|acquired-count|received-from|stream-offset|(?:first|last)-death-\w+)"
)


class AmqpDestination(NamedTuple):
    """An exchange, by default the broker's own, which routes to the queue named like the routing key."""

    exchange: str
    routing_key: str

    def __str__(self) -> str:
        return f"exchange {self.exchange!r}, routing key {self.routing_key!r}"


class WireMessage(NamedTuple):
    """A message as aiormq takes it."""

    message_id: str
    properties: spec.Basic.Properties
    body: bytes


def render(message: DispatchedMessage, events: CloudEvents | None) -> WireMessage:
    """The properties with the headers, and the body; persistent."""
    wire = to_wire(message, events, DIALECT)
    meta = message.meta
    message_id = wire.headers[EVENT_ID]
    properties = spec.Basic.Properties(
        headers=cast("dict[str, FieldValue]", wire.headers),
        content_type=wire.content_type,
        delivery_mode=DeliveryMode.PERSISTENT.value,
        message_id=message_id,
        timestamp=meta.created_at,
        message_type=meta.topic,
    )
    return WireMessage(message_id, properties, wire.body)


def from_message(message: AbstractMessage) -> DispatchedMessage:
    """The message as it was dispatched, from one that a consumer received, plain or as a CloudEvent.

    Headers from other sources become user headers, except those that brokers add, such as ``x-death``. Raises
    `outbox_core.errors.NotAnOutboxMessage` when the library's own headers are missing or unreadable, and
    `outbox_core.errors.UnsupportedRecord` for an object of another kind.
    """
    headers = {
        name: value
        for name, value in headers_of(message, expected=_MESSAGE).items()
        if _ADDED_BY_THE_BROKER.fullmatch(name) is None
    }
    content_type = part_of(message, "content_type", expected=_MESSAGE)
    if content_type and CONTENT_TYPE not in headers:
        headers[CONTENT_TYPE] = content_type
    return from_wire(headers, body_of(message, "body", expected=_MESSAGE), DIALECT)


def check_destination(value: object, exchange: str) -> AmqpDestination:
    """A routing key on the given exchange, or a pair of exchange and routing key. Raises `InvalidDestination`."""
    if isinstance(value, str):
        value = (exchange, value)
    if not isinstance(value, tuple):
        raise InvalidDestination(
            f"expected a routing key or (exchange, routing key), got {type(value).__name__}"
        )
    parts = cast("tuple[object, ...]", value)
    if len(parts) != 2:
        raise InvalidDestination(f"expected (exchange, routing key), got a tuple of {len(parts)}")
    for what, part in zip(("the exchange", "the routing key"), parts, strict=True):
        if not isinstance(part, str):
            raise InvalidDestination(f"{what} must be a str, got {type(part).__name__}")
        problem = name_problem(part)
        if problem is not None:
            raise InvalidDestination(f"{what} {problem}")
    destination = AmqpDestination(str(parts[0]), str(parts[1]))
    if not destination.exchange and not destination.routing_key:
        raise InvalidDestination("on the default exchange the routing key names a queue, and it is empty")
    return destination


def name_problem(name: str) -> str | None:
    """The rule that the name of an exchange or a routing key breaks; None when AMQP can carry it."""
    size = len(name.encode("utf-8", "replace"))
    if size > MAX_NAME_BYTES:
        return f"has {size} bytes and at most {MAX_NAME_BYTES} are allowed"
    return None if name.isprintable() else "has a character that cannot be printed"
