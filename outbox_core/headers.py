"""Headers: the names this library puts on the wire, the rules for users' own, and the way there and back."""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeGuard, cast
from uuid import UUID

from outbox_core.errors import InvalidHeader, InvalidTableName, InvalidTopic, NotAnOutboxMessage
from outbox_core.jsonb import SURROGATE
from outbox_core.meta import DispatchedMessage, Meta
from outbox_core.table import TableName
from outbox_core.topic import check_topic
from outbox_core.trace import accept_trace

EVENT_ID: Final = "event-id"
TENANT_ID: Final = "tenant-id"
TOPIC: Final = "topic"
KEY: Final = "key"
SEQUENCE: Final = "sequence"
ATTEMPTS: Final = "attempts"
REPLAYS: Final = "replays"
TABLE: Final = "table"
CREATED_AT: Final = "created-at"
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
CONTENT_TYPE: Final = "content-type"

ALWAYS_SENT: Final = (
    EVENT_ID,
    TENANT_ID,
    TOPIC,
    SEQUENCE,
    ATTEMPTS,
    REPLAYS,
    TABLE,
    CREATED_AT,
    CONTENT_TYPE,
)
"""The headers every message has on every broker."""

WIRE_HEADERS: Final = frozenset((*ALWAYS_SENT, KEY, TRACEPARENT, TRACESTATE))
"""Every header name of this library."""

MAX_HEADERS: Final = 64
MAX_HEADERS_BYTES: Final = 16 * 1024
"""Names and values together, in UTF-8. AMQP sends all headers in one frame of 128 KiB; NATS counts them as payload."""
MAX_NAME_CHARACTERS: Final = 128
MAX_KEY_BYTES: Final = 1024
"""A B-tree entry of PostgreSQL ends at about 2700 bytes, and the key shares it with a tenant and a sequence."""
_MAX_BIGINT: Final = 2**63 - 1
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}-?(?:[0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}")
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
MAX_CONTENT_TYPE_CHARACTERS: Final = 255
"""An AMQP short string is no longer."""

BROKER_PREFIXES: Final = ("nats-", "ce-", "ce_", "cloudevents_")
BROKER_NAMES: Final = frozenset(("cc", "bcc"))

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MEDIA_TYPE: Final = re.compile(
    r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+/[!#$%&'*+\-.^_`|~0-9A-Za-z]+(?: ?;[ -~]*[!-~])?"
)
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Headers(Mapping[str, str]):
    """Users' headers, checked and immutable. Names keep their case; no two differ in case alone.

    A name is made of RFC 7230 token characters, 128 at most. A value is one line of text without control characters
    and without white space around it. There are at most 64, of 16 KiB in all. Names that are this library's own or
    that mean something to a broker are refused. Whatever is refused raises `InvalidHeader`.
    """

    __slots__ = ("_values",)

    def __init__(self, values: object) -> None:
        self._values = _checked(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def items(self) -> ItemsView[str, str]:
        return self._values.items()

    def __repr__(self) -> str:
        return f"Headers({', '.join(self._values)})"


def _checked(values: object) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise InvalidHeader(None, f"expected a mapping of str to str, got {type(values).__name__}")
    given = cast("Mapping[object, object]", values)
    if len(given) > MAX_HEADERS:
        raise InvalidHeader(None, f"there are {len(given)} and at most {MAX_HEADERS} are allowed")
    checked: dict[str, str] = {}
    seen: set[str] = set()
    size = 0
    for given_name, given_value in given.items():
        name = _check_name(given_name)
        if _is_plain(given_value):
            value = given_value
            size += len(name) + len(value)
        else:
            value = _check_value(name, given_value)
            size += len(name) + len(value.encode())
        checked[name] = value
        seen.add(name.lower())
        if len(seen) != len(checked):
            raise InvalidHeader(name, "another header's name differs from it only in case")
    if size > MAX_HEADERS_BYTES:
        raise InvalidHeader(
            None, f"names and values have {size} bytes and at most {MAX_HEADERS_BYTES} are allowed in all"
        )
    return checked


@lru_cache(maxsize=1024)
def _check_name(name: object) -> str:
    """Names are few and come again with every message; only those found good are remembered."""
    if not isinstance(name, str):
        raise InvalidHeader(type(name), f"a name must be a str, got {type(name).__name__}")
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidHeader(
            name, f"the name has {len(name)} characters and at most {MAX_NAME_CHARACTERS} are allowed"
        )
    if _TOKEN.fullmatch(name) is None:
        raise InvalidHeader(
            name,
            "a name needs one or more ASCII letters, digits or !#$%&'*+-.^_`|~ and nothing else, no spaces",
        )
    lowered = name.lower()
    if lowered in WIRE_HEADERS:
        raise InvalidHeader(
            name, "the library itself sends a header of this name; choose another, such as x-" + lowered
        )
    if _belongs_to_a_broker(lowered):
        raise InvalidHeader(
            name,
            "it would change what a broker or a CloudEvents consumer does with the message;"
            f" names that begin with {', '.join(BROKER_PREFIXES)}, and cc and bcc, are refused in any case",
        )
    return str.__str__(name)


def _is_plain(value: object) -> TypeGuard[str]:
    """Most values are, and have no more to be looked at: printable ASCII without a space around it."""
    return (
        type(value) is str
        and value.isascii()
        and value.isprintable()
        and len(value) <= MAX_HEADERS_BYTES
        and value.strip(" ") == value
    )


def _check_value(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidHeader(
            name, f"the value must be a str, got {type(value).__name__}; convert it with str()"
        )
    if len(value) > MAX_HEADERS_BYTES:
        raise InvalidHeader(
            name,
            f"the value has {len(value)} characters and at most {MAX_HEADERS_BYTES} bytes are allowed in all",
        )
    unsafe = unsafe_character(value)
    if unsafe is not None:
        raise InvalidHeader(name, f"the value has {unsafe}; a header is one line of text")
    if value != value.strip():
        raise InvalidHeader(
            name, "the value begins or ends with white space, which NATS strips on the way; strip it"
        )
    return str.__str__(value)


def unsafe_character(text: str) -> str | None:
    """The first control character, line separator or lone surrogate: what one line of UTF-8 cannot carry."""
    unsafe = None if text.isprintable() else _UNSAFE.search(text)
    if unsafe is None:
        return None
    code = ord(unsafe[0])
    kind = "the lone surrogate" if 0xD800 <= code <= 0xDFFF else "the control character"
    return f"{kind} U+{code:04X} at position {unsafe.start()}"


def is_media_type(text: str) -> bool:
    """Whether it can be a content type, such as ``text/plain; charset=utf-8``; 255 characters at most."""
    return len(text) <= MAX_CONTENT_TYPE_CHARACTERS and _MEDIA_TYPE.fullmatch(text) is not None


def _belongs_to_a_broker(lowered: str) -> bool:
    return lowered.startswith(BROKER_PREFIXES) or lowered in BROKER_NAMES


NO_HEADERS: Final = Headers({})


def to_headers(message: DispatchedMessage) -> dict[str, str]:
    """The headers of a message on the wire, the same for every broker: all strings, each one line."""
    meta = message.meta
    headers = {} if meta.headers is NO_HEADERS else dict(meta.headers)
    headers[EVENT_ID] = str(meta.event_id)
    headers[TENANT_ID] = _tenant(meta.tenant_id)
    headers[TOPIC] = meta.topic
    headers[SEQUENCE] = str(meta.sequence)
    headers[ATTEMPTS] = str(meta.attempts)
    headers[REPLAYS] = str(meta.replays)
    headers[TABLE] = meta.table
    headers[CREATED_AT] = _timestamp(meta.created_at)
    headers[CONTENT_TYPE] = message.content_type
    if meta.key is not None:
        headers[KEY] = meta.key
    if meta.traceparent is not None:
        headers[TRACEPARENT] = meta.traceparent
    if meta.tracestate is not None:
        headers[TRACESTATE] = meta.tracestate
    return headers


@lru_cache(maxsize=1024)
def _tenant(tenant_id: UUID) -> str:
    """Tenants come again with every message, and a UUID's text costs as much as all other headers together."""
    return str(tenant_id)


def _timestamp(moment: datetime) -> str:
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat()[: -len("+00:00")] + "Z"


def from_headers(headers: Mapping[str, object], body: bytes) -> DispatchedMessage:
    """The message as it was dispatched, from the headers and the body of a broker's record.

    The library's own headers are found whatever case a broker or a bridge made of them. Others come back as user
    headers, foreign ones too, as text; left out are those that no user can have set: that belong to a broker
    (``nats-…``, ``ce-…``, ``cc``, ``bcc``), or whose name or value no header of a `Message` can have. A malformed trace
    is dropped and counted. Raises `NotAnOutboxMessage` when a header that is always sent is missing or cannot be read.
    """
    ours: dict[str, str] = {}
    users: dict[str, str] = {}
    for name, value in headers.items():
        lowered = name.lower()
        if lowered in WIRE_HEADERS:
            if name == lowered or lowered not in ours:
                ours[lowered] = text_of(value)
        elif (
            _TOKEN.fullmatch(name) and len(name) <= MAX_NAME_CHARACTERS and not _belongs_to_a_broker(lowered)
        ):
            text = text_of(value).strip()
            if unsafe_character(text) is None:
                users[name] = text
    missing = [name for name in ALWAYS_SENT if name not in ours]
    if missing:
        raise NotAnOutboxMessage(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    traceparent, tracestate = accept_trace(ours.get(TRACEPARENT), ours.get(TRACESTATE))
    meta = Meta(
        table=_table(ours),
        tenant_id=_uuid(ours, TENANT_ID),
        topic=_topic(ours),
        event_id=_uuid(ours, EVENT_ID),
        sequence=_int(ours, SEQUENCE),
        attempts=_int(ours, ATTEMPTS),
        replays=_int(ours, REPLAYS),
        key=_key(ours),
        headers=users,
        created_at=_moment(ours, CREATED_AT),
        traceparent=traceparent,
        tracestate=tracestate,
    )
    if not is_media_type(ours[CONTENT_TYPE]):
        raise NotAnOutboxMessage(f"{CONTENT_TYPE} is not a media type")
    return DispatchedMessage(meta, body, ours[CONTENT_TYPE])


def text_of(value: object) -> str:
    """A header's value as text, whatever a client made of it; what is no character becomes U+FFFD."""
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    try:
        text = value if isinstance(value, str) else str(value)
    except (ValueError, RecursionError):
        # Python writes no number of thousands of digits, and nothing that is nested as deep.
        return type(value).__name__
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)


def _key(ours: Mapping[str, str]) -> str | None:
    key = ours.get(KEY)
    if key is None:
        return None
    if not key or unsafe_character(key) is not None or key != key.strip():
        raise NotAnOutboxMessage(f"{KEY} is not one line of text")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise NotAnOutboxMessage(f"{KEY} has more than {MAX_KEY_BYTES} bytes")
    return key


def _topic(ours: Mapping[str, str]) -> str:
    try:
        return check_topic(ours[TOPIC])
    except InvalidTopic:
        raise NotAnOutboxMessage(f"{TOPIC} is not a topic of this library") from None


def _table(ours: Mapping[str, str]) -> str:
    try:
        return str(TableName.parse(ours[TABLE]))
    except InvalidTableName:
        raise NotAnOutboxMessage(f"{TABLE} is not the name of a table") from None


def _uuid(ours: Mapping[str, str], name: str) -> UUID:
    if _UUID.fullmatch(ours[name]) is None:
        raise NotAnOutboxMessage(f"{name} is not a UUID")
    return UUID(ours[name])


def _int(ours: Mapping[str, str], name: str) -> int:
    text = ours[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _MAX_BIGINT):
        raise NotAnOutboxMessage(f"{name} is not a whole number")
    return int(text)


def _moment(ours: Mapping[str, str], name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(ours[name]) if _MOMENT.fullmatch(ours[name]) else None
        if moment is not None:
            moment.astimezone(UTC)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise NotAnOutboxMessage(f"{name} is not an RFC 3339 time with its offset")
    return moment
