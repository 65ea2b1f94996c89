"""Render a message as a NATS message, and read it back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from outbox_core.adapter.destination import InvalidDestination
from outbox_core.adapter.record import body_of, headers_of
from outbox_core.adapter.wire import Dialect, from_wire, to_wire
from outbox_core.headers import EVENT_ID

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from outbox_core.adapter.cloud_events import CloudEvents
    from outbox_core.message import DispatchedMessage

MESSAGE_ID: Final = "Nats-Msg-Id"
DIALECT: Final = Dialect("ce-", percent_encoded=True)
MAX_SUBJECT_CHARACTERS: Final = 255
MAX_STREAM_CHARACTERS: Final = 255

_MSG: Final = "one message as nats-py gives it to a subscriber"
_SUBJECT: Final = re.compile(r"[!-)+-=?-~]+")
_STREAM: Final = re.compile(r"[!-)+,\-0-=?-\[\]-~]+")
_HEADER_LINE: Final = len("NATS/1.0\r\n") + len("\r\n")
_PER_HEADER: Final = len(": ") + len("\r\n")
_MAX_CHARACTER_BYTES: Final = 4
"""The longest character in UTF-8."""


class WireMessage:
    """A message as nats-py takes it."""

    __slots__ = ("headers", "payload")

    def __init__(self, headers: dict[str, str], payload: bytes) -> None:
        self.headers = headers
        self.payload = payload

    @property
    def size(self) -> int:
        """The bytes that the server compares with its ``max_payload``."""
        return (
            len(self.payload)
            + _HEADER_LINE
            + sum(len(name) + len(value.encode()) + _PER_HEADER for name, value in self.headers.items())
        )

    def fits(self, limit: int) -> bool:
        """True when the size is within the limit. An upper bound, which is cheaper, decides for most messages."""
        text = sum(map(len, self.headers)) + sum(map(len, self.headers.values()))
        upper_bound = (
            len(self.payload) + _HEADER_LINE + _PER_HEADER * len(self.headers) + _MAX_CHARACTER_BYTES * text
        )
        return upper_bound <= limit or self.size <= limit


def render(message: DispatchedMessage, events: CloudEvents | None) -> WireMessage:
    """The headers and the payload. A replay gets a new message id, or the server would drop it as a duplicate."""
    wire = to_wire(message, events, DIALECT)
    meta = message.meta
    headers = wire.headers
    event_id = headers[EVENT_ID]
    headers[MESSAGE_ID] = f"{event_id}:r{meta.replays}" if meta.replays else event_id
    return WireMessage(headers, wire.body)


def from_msg(msg: Msg) -> DispatchedMessage:
    """The message as it was dispatched, from one that a consumer received, plain or as a CloudEvent.

    Headers from other sources become user headers. Raises `outbox_core.errors.NotAnOutboxMessage` when the library's
    own headers are missing or unreadable, and `outbox_core.errors.UnsupportedRecord` for an object of another kind.
    """
    return from_wire(headers_of(msg, expected=_MSG), body_of(msg, "data", expected=_MSG), DIALECT)


def check_subject(value: object) -> str:
    """The value, if messages can be published to it. Raises `InvalidDestination` with the broken rule."""
    if not isinstance(value, str):
        raise InvalidDestination(f"a subject must be a str, got {type(value).__name__}")
    if not 0 < len(value) <= MAX_SUBJECT_CHARACTERS:
        raise InvalidDestination(f"a subject has from 1 to {MAX_SUBJECT_CHARACTERS} characters")
    if _SUBJECT.fullmatch(value) is None:
        raise InvalidDestination(
            "a subject to publish to has printable ASCII characters but no spaces, '*' or '>'"
        )
    if "" in value.split("."):
        raise InvalidDestination(
            "a subject has no empty token: it may not begin or end with a dot, nor have two in a row"
        )
    if value.startswith("$"):
        raise InvalidDestination("subjects that begin with '$' are the server's own")
    return value


def stream_problem(name: str) -> str | None:
    """The rule of JetStream that the name of a stream breaks; None when it breaks none."""
    if not 0 < len(name) <= MAX_STREAM_CHARACTERS:
        return f"a stream's name has from 1 to {MAX_STREAM_CHARACTERS} characters, not {len(name)}"
    if _STREAM.fullmatch(name) is None:
        return (
            "a stream's name has printable ASCII characters but no spaces, '.', '*', '>', '/' or '\\'"
            " (a subject has dots; the stream that stores it is named without)"
        )
    return None
