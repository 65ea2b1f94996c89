"""Where the parts of a message stand in an AMQP message, and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from aio_pika import DeliveryMode, Message

from outbox_core.adapter.wire import Dialect, from_wire, to_wire
from outbox_core.headers import CONTENT_TYPE

if TYPE_CHECKING:
    from aio_pika.abc import AbstractMessage

    from outbox_core.adapter.cloud_events import CloudEvents
    from outbox_core.message import DispatchedMessage

DIALECT: Final = Dialect("ce-")
MAX_NAME_BYTES: Final = 255
"""An AMQP short string is no longer."""

_ADDED_BY_THE_BROKER: Final = re.compile(
    r"x-(?:death|delivery-count|acquired-count|received-from|stream-offset|(?:first|last)-death-\w+)"
)


class AmqpDestination(NamedTuple):
    """An exchange, by default the broker's own, which routes to the queue named like the routing key."""

    exchange: str
    routing_key: str

    def __str__(self) -> str:
        return f"exchange {self.exchange!r}, routing key {self.routing_key!r}"


def place(message: DispatchedMessage, events: CloudEvents | None) -> Message:
    """The properties, the headers and the body; persistent."""
    wire = to_wire(message, events, DIALECT)
    meta = message.meta
    return Message(
        wire.body,
        headers=dict(wire.headers),
        content_type=wire.content_type,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=str(meta.event_id),
        timestamp=meta.created_at,
        type=meta.topic,
    )


def from_message(message: AbstractMessage) -> DispatchedMessage:
    """The message as it was dispatched, from what a consumer received, plain or CloudEvents.

    Headers of others come back as user headers, but for those that brokers add on the way, such as ``x-death``.
    Raises `outbox_core.errors.NotAnOutboxMessage` when the library's own are missing or cannot be read.
    """
    headers = {
        name: value
        for name, value in cast("dict[str, object]", message.headers).items()
        if _ADDED_BY_THE_BROKER.fullmatch(name) is None
    }
    if message.content_type and CONTENT_TYPE not in headers:
        headers[CONTENT_TYPE] = message.content_type
    return from_wire(headers, message.body, DIALECT)


def check_destination(value: object, exchange: str) -> AmqpDestination:
    """A routing key on the given exchange, or a pair of exchange and routing key; a `ValueError` for anything else."""
    if isinstance(value, str):
        value = (exchange, value)
    if not isinstance(value, tuple):
        raise ValueError(f"expected a routing key or (exchange, routing key), got {type(value).__name__}")  # noqa: TRY004
    parts = cast("tuple[object, ...]", value)
    if len(parts) != 2:
        raise ValueError(f"expected (exchange, routing key), got a tuple of {len(parts)}")
    for what, part in zip(("the exchange", "the routing key"), parts, strict=True):
        if not isinstance(part, str):
            raise ValueError(f"{what} must be a str, got {type(part).__name__}")  # noqa: TRY004
        if len(part.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            raise ValueError(f"{what} has more than {MAX_NAME_BYTES} bytes")
        if not part.isprintable():
            raise ValueError(f"{what} has a character that cannot be printed")
    destination = AmqpDestination(str(parts[0]), str(parts[1]))
    if not destination.exchange and not destination.routing_key:
        raise ValueError("on the default exchange the routing key names a queue, and it is empty")
    return destination
