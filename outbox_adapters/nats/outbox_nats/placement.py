"""Where the parts of a message stand in a NATS message, and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from outbox_core.adapter.wire import Dialect, from_wire, to_wire

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from outbox_core.adapter.cloud_events import CloudEvents
    from outbox_core.message import DispatchedMessage

MESSAGE_ID: Final = "Nats-Msg-Id"
DIALECT: Final = Dialect("ce-", percent_encoded=True)
MAX_SUBJECT_CHARACTERS: Final = 255

_SUBJECT: Final = re.compile(r"[!-)+-=?-~]+")
_HEADER_LINE: Final = len("NATS/1.0\r\n") + len("\r\n")
_PER_HEADER: Final = len(": ") + len("\r\n")


class Placed:
    """A message as nats-py takes it. ``size`` is what the server compares with its ``max_payload``, in bytes."""

    __slots__ = ("headers", "payload", "size")

    def __init__(self, headers: dict[str, str], payload: bytes) -> None:
        self.headers = headers
        self.payload = payload
        self.size = (
            len(payload)
            + _HEADER_LINE
            + sum(len(name) + len(value.encode()) + _PER_HEADER for name, value in headers.items())
        )


def place(message: DispatchedMessage, events: CloudEvents | None) -> Placed:
    """The headers and the payload. A replay has a message id of its own, or the server would drop it as a repeat."""
    wire = to_wire(message, events, DIALECT)
    meta = message.meta
    headers = wire.headers
    headers[MESSAGE_ID] = f"{meta.event_id}:r{meta.replays}" if meta.replays else str(meta.event_id)
    return Placed(headers, wire.body)


def from_msg(msg: Msg) -> DispatchedMessage:
    """The message as it was dispatched, from what a consumer received, plain or CloudEvents.

    Headers of others come back as user headers. Raises `outbox_core.errors.NotAnOutboxMessage` when the library's own
    are missing or cannot be read.
    """
    return from_wire(cast("dict[str, object]", msg.headers or {}), msg.data, DIALECT)


def check_subject(value: object) -> str:
    """The value, if messages can be published to it; a `ValueError` with the broken rule if not."""
    if not isinstance(value, str):
        raise ValueError(f"a subject must be a str, got {type(value).__name__}")  # noqa: TRY004
    if not 0 < len(value) <= MAX_SUBJECT_CHARACTERS:
        raise ValueError(f"a subject has from 1 to {MAX_SUBJECT_CHARACTERS} characters")
    if _SUBJECT.fullmatch(value) is None:
        raise ValueError("a subject to publish to has printable ASCII characters but no spaces, '*' or '>'")
    if "" in value.split("."):
        raise ValueError(
            "a subject has no empty token: it may not begin or end with a dot, nor have two in a row"
        )
    if value.startswith("$"):
        raise ValueError("subjects that begin with '$' are the server's own")
    return value
