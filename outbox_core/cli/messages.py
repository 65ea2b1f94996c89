"""Messages as commands show them; content only where it was read, which is where it was asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outbox_core.record import StoredMessage

_NOT_READ = ("headers", "payload")


def as_document(message: StoredMessage) -> dict[str, Any]:
    """A message for JSON. The payload is text, or hexadecimal digits in ``payload_hex`` when it is not UTF-8."""
    found: dict[str, Any] = {
        name: getattr(message, name) for name in message.__slots__ if name not in _NOT_READ
    }
    if message.payload is None:
        return found
    found["headers"] = message.headers or {}
    try:
        return found | {"payload": message.payload.decode()}
    except UnicodeDecodeError:
        return found | {"payload_hex": message.payload.hex()}


def shown_headers(message: StoredMessage) -> str:
    """Headers for people, as JSON."""
    return json.dumps(dict(message.headers or {}), ensure_ascii=False)


def shown_payload(message: StoredMessage) -> str:
    """A payload for people; bytes that are no text as hexadecimal digits."""
    if message.payload is None:
        return ""
    try:
        return message.payload.decode()
    except UnicodeDecodeError:
        return f"0x{message.payload.hex()}"
