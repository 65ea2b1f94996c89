"""CloudEvents 1.0: the attributes that carry a message's fields, and reading and writing the JSON event format."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

from outbox_core import headers as names
from outbox_core.errors import ConfigError, InvalidUrl, NotAnOutboxMessage
from outbox_core.errors.quoting import shown

SPECVERSION: Final = "1.0"
STRUCTURED_CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
MODES: Final[tuple[Literal["binary"], Literal["structured"]]] = ("binary", "structured")

ATTRIBUTES: Final[Mapping[str, str]] = {
    names.EVENT_ID: "id",
    names.TOPIC: "type",
    names.CREATED_AT: "time",
    names.CONTENT_TYPE: "datacontenttype",
    names.KEY: "partitionkey",
    names.TRACEPARENT: "traceparent",
    names.TRACESTATE: "tracestate",
    names.TENANT_ID: "outboxtenant",
    names.SEQUENCE: "outboxsequence",
    names.ATTEMPTS: "outboxattempts",
    names.REPLAYS: "outboxreplays",
    names.TABLE: "outboxtable",
}
"""The library's headers and the CloudEvents attributes that carry them; ``source`` and ``specversion`` are added."""

_HEADERS: Final[Mapping[str, str]] = {attribute: name for name, attribute in ATTRIBUTES.items()}
_SOURCE: Final = re.compile(r"[!#$%&'()*+,\-./:;=?@_~0-9A-Za-z]+")
_JSON_TYPE: Final = re.compile(r"(?:application|text)/(?:[^;\s]+\+)?json\s*(?:;.*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CloudEvents:
    """The form in which a dispatcher writes CloudEvents 1.0.

    ``binary`` puts the attributes into headers and leaves the payload unchanged; ``structured`` puts everything into
    one JSON document, which contains a JSON payload unchanged and any other as base64. ``source`` is the URI reference
    of the producer, by default ``/outbox/<table>``. The ``id`` is the ``event_id``, also after a replay.
    """

    mode: Literal["binary", "structured"] = "binary"
    source: str | None = None

    def __post_init__(self) -> None:
        mode: object = self.mode
        if mode not in MODES:
            raise ConfigError(f"the CloudEvents mode is {mode!r} and must be one of {', '.join(MODES)}")
        source: object = self.source
        if source is not None and (not isinstance(source, str) or _SOURCE.fullmatch(source) is None):
            raise ConfigError(
                f"the CloudEvents source is {source!r} and must be a URI reference, such as '/shop/orders'"
            )

    @classmethod
    def of(cls, value: object) -> CloudEvents | None:
        """Read a dispatcher's argument: a `CloudEvents`, the name of a mode, or None for plain headers."""
        if value is None or isinstance(value, cls):
            return value
        for mode in MODES:
            if value == mode:
                return cls(mode)
        raise ConfigError(
            f"cloud_events must be 'binary', 'structured', a CloudEvents or None, got {value!r}"
        )

    @classmethod
    def from_option(cls, scheme: str, value: str | None) -> CloudEvents | None:
        """Read the option ``cloud_events`` of a dispatcher URL; None when it is not given."""
        if value is None:
            return None
        for mode in MODES:
            if value == mode:
                return cls(mode)
        raise InvalidUrl(
            scheme, f"the option 'cloud_events' is {value!r} and must be one of {', '.join(MODES)}"
        )

    def attributes(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The attributes of a message, from its headers."""
        attributes = {"specversion": SPECVERSION, "source": self.source or f"/outbox/{headers[names.TABLE]}"}
        for name, attribute in ATTRIBUTES.items():
            if name in headers:
                attributes[attribute] = headers[name]
        return attributes


def to_document(attributes: Mapping[str, str], payload: bytes) -> bytes:
    """The JSON event format. A payload that is JSON is copied into it, byte for byte; any other becomes base64."""
    head = json.dumps(attributes, ensure_ascii=False, separators=(",", ":")).encode()[:-1]
    if _is_json(attributes.get("datacontenttype", ""), payload):
        return head + b',"data":' + payload + b"}"
    return head + b',"data_base64":"' + base64.b64encode(payload) + b'"}'


def from_document(document: bytes) -> tuple[dict[str, str], bytes]:
    """The attributes and the payload of a JSON event. Raises `NotAnOutboxMessage` when it cannot be read."""
    try:
        values, pieces = _members(document.decode())
    except (ValueError, RecursionError):
        raise NotAnOutboxMessage("it is labelled as a JSON CloudEvent and is not a JSON object") from None
    values.pop("data", None)
    encoded = values.pop("data_base64", None)
    try:
        payload = (
            pieces.get("data", "").encode() if encoded is None else base64.b64decode(encoded, validate=True)
        )
    except (binascii.Error, TypeError, ValueError):
        raise NotAnOutboxMessage("data_base64 is not base64") from None
    return {name: value for name, value in values.items() if isinstance(value, str)}, payload


def to_headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """The library's headers, from the attributes of a CloudEvent. Raises `NotAnOutboxMessage`."""
    version = attributes.get("specversion")
    if version != SPECVERSION:
        raise NotAnOutboxMessage(f"it is a CloudEvent of version {shown(version)}, and 1.0 is expected")
    return {_HEADERS[name]: value for name, value in attributes.items() if name in _HEADERS}


def _is_json(content_type: str, payload: bytes) -> bool:
    """True when the payload can be copied into a JSON document and read back byte for byte."""
    if _JSON_TYPE.fullmatch(content_type) is None:
        return False
    try:
        text = payload.decode()
        _, end = _decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return end == len(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decoder: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _members(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The members of a JSON object, and the source text of each value."""
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("not an object")
    values: dict[str, Any] = {}
    pieces: dict[str, str] = {}
    at = _after_space(text, at + 1)
    another = text[at : at + 1] != "}"
    while another:
        quote = text[at : at + 1]
        name, at = _decoder.raw_decode(text, at)
        at = _after_space(text, at)
        if quote != '"' or text[at : at + 1] != ":":
            raise ValueError("not a member")
        begin = _after_space(text, at + 1)
        values[name], end = _decoder.raw_decode(text, begin)
        pieces[name] = text[begin:end]
        at = _after_space(text, end)
        another = text[at : at + 1] == ","
        if another:
            at = _after_space(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError("not an object")
    if _after_space(text, at + 1) != len(text):
        raise ValueError("more than an object")
    return values, pieces


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
