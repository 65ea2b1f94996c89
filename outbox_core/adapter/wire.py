"""The form of a message on the wire, plain or as a CloudEvent: adapters render it for their client and read it back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from outbox_core import headers
from outbox_core.adapter import cloud_events
from outbox_core.errors import InvalidHeader, InvalidTopic, NotAnOutboxMessage, PermanentError
from outbox_core.errors.quoting import shown
from outbox_core.headers import (
    CONTENT_TYPE,
    EVENT_ID,
    KEY,
    NO_HEADERS,
    TABLE,
    TOPIC,
    TRACEPARENT,
    TRACESTATE,
    WIRE_HEADERS,
    Headers,
    text_of,
    unsafe_character,
)
from outbox_core.topic import check_topic

if TYPE_CHECKING:
    from outbox_core.adapter.cloud_events import CloudEvents
    from outbox_core.meta import DispatchedMessage

_PREFIX: Final = re.compile(r"ce[-_]|cloudevents[_:]")
_TEXT_FROM_ROWS: Final = (KEY, TRACEPARENT, TRACESTATE)
"""The headers whose text comes from a row, beside topic, content type and table; the others are numbers, times and
UUIDs."""
_CLOUD_EVENT: Final = "application/cloudevents"
# CloudEvents, HTTP binding 3.1.3.2: printable ASCII but space, double quote and percent stands for itself.
_UNESCAPED: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


@dataclass(frozen=True, slots=True)
class Dialect:
    """A broker's binding of CloudEvents: the prefix of headers in binary mode, and their percent-encoding."""

    prefix: str
    percent_encoded: bool = False


class Wire(NamedTuple):
    """The headers, each one line of text, and the body that an adapter renders."""

    headers: dict[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """The media type of the body: the message's own, or that of a structured CloudEvent."""
        return self.headers[CONTENT_TYPE]

    @property
    def size(self) -> int:
        """Bytes of the body and of the headers' names and values, in UTF-8."""
        return len(self.body) + sum(
            len(name.encode()) + len(value.encode()) for name, value in self.headers.items()
        )


def to_wire(message: DispatchedMessage, events: CloudEvents | None, dialect: Dialect) -> Wire:
    """The headers and the body of a message. Every form has the header ``event-id``.

    Raises `PermanentError` for a header that a client would rewrite, a broker misread or a consumer's `from_wire`
    refuse. Messages enqueued through the library have none; a row that was written by hand may.
    """
    plain = _checked(message, headers.to_headers(message))
    if events is None:
        return Wire(plain, message.payload)
    attributes = events.attributes(plain)
    rendered = {name: value for name, value in plain.items() if name not in WIRE_HEADERS}
    rendered[EVENT_ID] = plain[EVENT_ID]
    if events.mode == "structured":
        rendered[CONTENT_TYPE] = cloud_events.STRUCTURED_CONTENT_TYPE
        return Wire(rendered, cloud_events.to_document(attributes, message.payload))
    rendered[CONTENT_TYPE] = attributes.pop("datacontenttype")
    for name, value in attributes.items():
        rendered[dialect.prefix + name] = quote(value, safe=_UNESCAPED) if dialect.percent_encoded else value
    return Wire(rendered, message.payload)


def _checked(message: DispatchedMessage, plain: dict[str, str]) -> dict[str, str]:
    users = message.meta.headers
    if users is not NO_HEADERS and users:
        try:
            Headers(users)
        except InvalidHeader as error:
            raise PermanentError(str(error)) from None
    _check_readable(plain[TOPIC], plain[CONTENT_TYPE], plain[TABLE])
    for name in _TEXT_FROM_ROWS:
        if name in plain:
            _check_line(name, plain[name])
    return plain


def _check_line(name: str, value: str) -> None:
    unsafe = unsafe_character(value)
    if unsafe is not None or value != value.strip():
        found = unsafe or "white space around it"
        raise PermanentError(f"the header {name!r} has {found}; a header is one line of text")


@lru_cache(maxsize=1024)
def _check_readable(topic: str, content_type: str, table: str) -> None:
    """Refuse the values that `from_wire` would refuse. Cached: most messages repeat the same few."""
    for name, value in ((TOPIC, topic), (CONTENT_TYPE, content_type), (TABLE, table)):
        _check_line(name, value)
    try:
        check_topic(topic)
    except InvalidTopic as error:
        raise PermanentError(str(error)) from None
    if not headers.is_media_type(content_type):
        raise PermanentError(
            "the content type of the message is not a media type, such as 'application/avro'"
        )


def from_wire(given: Mapping[str, object], body: bytes, dialect: Dialect) -> DispatchedMessage:
    """The message as it was dispatched, from any of the forms. Raises `NotAnOutboxMessage`."""
    content_type = _content_type(given)
    if content_type.lower().startswith(_CLOUD_EVENT):
        if not content_type.lower().startswith(f"{_CLOUD_EVENT}+json"):
            raise NotAnOutboxMessage(
                f"it is a CloudEvent as {shown(content_type)}, and only +json can be read"
            )
        attributes, payload = cloud_events.from_document(body)
        return headers.from_headers({**_users(given), **cloud_events.to_headers(attributes)}, payload)
    attributes = _attributes(given, dialect)
    if "specversion" not in attributes:
        return headers.from_headers(given, body)
    attributes["datacontenttype"] = content_type
    return headers.from_headers({**_users(given), **cloud_events.to_headers(attributes)}, body)


def _content_type(given: Mapping[str, object]) -> str:
    for name, value in given.items():
        if name.lower() == CONTENT_TYPE:
            return text_of(value)
    return ""


def _attributes(given: Mapping[str, object], dialect: Dialect) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for name, value in given.items():
        lowered = name.lower()
        match = _PREFIX.match(lowered)
        if match is not None:
            text = text_of(value)
            attributes[lowered[match.end() :]] = unquote(text) if dialect.percent_encoded else text
    return attributes


def _users(given: Mapping[str, object]) -> dict[str, object]:
    """The headers that are neither the library's nor CloudEvents' own."""
    return {
        name: value
        for name, value in given.items()
        if name.lower() not in WIRE_HEADERS and _PREFIX.match(name.lower()) is None
    }
