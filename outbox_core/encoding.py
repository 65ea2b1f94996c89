"""Payloads as JSON that PostgreSQL stores: what people have goes in, what JSONB would refuse is refused first."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, cast
from uuid import UUID

from outbox_core.errors import EncodingError
from outbox_core.jsonb import MAX_DEPTH, ROOT, SURROGATE, TOO_DEEP, broken_rule, parse_json

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Refused(TypeError):
    """Why a value has no place in a payload; the walk adds where it stands."""


def encode_json(value: object) -> str:
    """The value as compact JSON text that ``jsonb`` accepts. The default ``encode`` of an outbox.

    Besides what the standard library's ``json`` takes: ``UUID``; aware ``datetime`` (as UTC, RFC 3339, with ``Z``),
    ``date`` and ``time`` (ISO 8601); ``Decimal`` (as a string, so that no digit is lost); ``Enum`` (its value);
    dataclasses; any ``Mapping``; pydantic models (``model_dump(mode="json")``, so the model's own rules hold inside).
    Keys may be ``str``, ``UUID`` or ``Enum``; numbers, booleans and None become text as ``json`` makes them.

    Refused, with the place named: NaN and Infinity, NUL, lone surrogates, naive datetimes, ``timedelta``, bytes, sets
    (their order changes between runs, and with it the digest), more than 200 levels, and whatever else is unknown.
    """
    try:
        text = _encoder.encode(value)
    except Exception as error:
        # Anything may come out of the user's own mappings and models.
        text = _encode_slowly(value, error)
    broken = broken_rule(text)
    if broken is not None:
        _walk(value, ROOT, 0, ())
        raise EncodingError(ROOT, broken)
    return text


def check_encoded(text: object) -> str:
    """The text, if it is a ``str`` of JSON that ``jsonb`` accepts: for an ``encode`` of the user's."""
    if not isinstance(text, str):
        raise EncodingError(ROOT, f"the encode function must return a str of JSON, got {type(text).__name__}")
    _check_json(text)
    return text


@dataclass(frozen=True, slots=True)
class JsonText:
    """Text that is already JSON, checked when made and kept as it is.

    Of keys that occur twice in an object ``jsonb`` keeps the last. Anything ``jsonb`` would refuse raises
    `EncodingError`.
    """

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        given: object = self.text
        if not isinstance(given, str):
            hint = "; decode it first, or send it untouched as body=" if isinstance(given, bytes) else ""
            raise EncodingError(ROOT, f"JSON text must be a str, got {type(given).__name__}{hint}")
        _check_json(given)


def _check_json(text: str) -> None:
    """Parse the text, and encode what it holds: that finds escaped surrogates, and names the place."""
    encode_json(parse_json(text))
    broken = broken_rule(text)
    if broken is not None:
        raise EncodingError(ROOT, broken)


def _plain(value: object) -> object:
    """One level of a value that ``json`` does not know, in terms it may know."""
    match value:
        case UUID():
            return str(value)
        case datetime():
            return _utc(value)
        case date() | time():
            return value.isoformat()
        case Decimal():
            if not value.is_finite():
                raise _Refused(f"the Decimal {value} is not a number JSON has; send None or a string instead")
            return str(value)
        case Enum():
            return cast("object", value.value)
        case Mapping():
            return dict(cast("Mapping[object, object]", value))
        case type() | JsonText():
            pass
        case _ if _is_pydantic_model(value):
            return cast("Any", value).model_dump(mode="json")
        case _ if dataclasses.is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        case _:
            pass
    raise _Refused(_unknown(value))


def _utc(value: datetime) -> str:
    if value.utcoffset() is None:
        raise _Refused("the datetime is naive, so nobody can tell which moment it means; give it a tzinfo")
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise _Refused("the datetime is outside the years 1 to 9999 in UTC") from None


def _is_pydantic_model(value: object) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def _unknown(value: object) -> str:
    name = type(value).__name__
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{name} is not JSON; send raw bytes as body= with a content_type, or encode them as text"
    if isinstance(value, Set):
        return f"{name} has no order, so equal messages would differ; convert it with sorted()"
    if isinstance(value, timedelta):
        return f"{name} has no one form in JSON; convert it, for example with .total_seconds()"
    if isinstance(value, JsonText):
        return f"{name} is a whole payload; it cannot stand inside another"
    if hasattr(value, "__iter__"):
        return f"{name} is not known; convert it with list() or dict()"
    return f"{name} is not known; convert it to str, int, float, bool, None, list or dict"


def _encode_slowly(value: object, error: Exception) -> str:
    """Name what the encoder refused; if nothing is wrong but keys, encode with these converted."""
    try:
        return _encoder.encode(_walk(value, ROOT, 0, ()))
    except EncodingError:
        raise
    except RecursionError:
        raise EncodingError(ROOT, TOO_DEEP) from None
    except Exception:
        raise EncodingError(ROOT, f"the encoder failed with {type(error).__name__}") from None


def _walk(value: object, path: str, depth: int, parents: tuple[int, ...]) -> object:
    """The value in plain terms, checked piece by piece. Slow: it runs only when the encoder's text will not do."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        _check_string(value, path, "the text")
        return value
    if isinstance(value, int):
        _check_int(value, path)
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            rule = f"the float {value!r} is not a number JSON has; send None or a string instead"
            raise EncodingError(path, rule)
        return value
    if id(value) in parents:
        raise EncodingError(path, "it refers back to a value that contains it")
    inner = (*parents, id(value))
    if not isinstance(value, list | tuple | dict):
        return _walk(_converted(value, path), path, depth, inner)
    if depth >= MAX_DEPTH:
        raise EncodingError(path, TOO_DEEP)
    if isinstance(value, dict):
        members: dict[str, object] = {}
        for key, member in cast("dict[object, object]", value).items():
            name = _key(key, path)
            if name in members:
                raise EncodingError(path, f"two of its keys are {_cut(name)} in JSON")
            members[name] = _walk(member, _member_path(path, name), depth + 1, inner)
        return members
    items: list[object] = []
    for index, item in enumerate(cast("list[object]", value)):
        items.append(_walk(item, f"{path}[{index}]", depth + 1, inner))
    return items


def _converted(value: object, path: str) -> object:
    try:
        return _plain(value)
    except _Refused as refusal:
        raise EncodingError(path, str(refusal)) from None
    except Exception as error:
        rule = f"{type(value).__name__} could not be converted: {type(error).__name__}"
        raise EncodingError(path, rule) from None


def _check_int(value: int, path: str) -> None:
    try:
        int.__repr__(value)
    except ValueError:
        rule = f"the int has more than {sys.get_int_max_str_digits()} digits; send it as a string"
        raise EncodingError(path, rule) from None


def _key(key: object, path: str) -> str:
    if isinstance(key, Enum) and not isinstance(key, str):
        return _key(cast("object", key.value), path)
    if isinstance(key, str):
        _check_string(key, path, "a key")
        return str.__str__(key)
    if isinstance(key, UUID):
        return str(key)
    if key is None or isinstance(key, bool | int | float):
        return _encoder.encode(_walk(key, f"{path}, a key", 0, ()))
    raise EncodingError(
        path, f"a key is a {type(key).__name__}; keys must be str (UUID and Enum are converted)"
    )


def _check_string(text: str, path: str, what: str) -> None:
    position = text.find("\0")
    if position >= 0:
        raise EncodingError(
            path, f"{what} has NUL (\\u0000) at position {position}, which PostgreSQL cannot store"
        )
    surrogate = None if text.isascii() else SURROGATE.search(text)
    if surrogate is not None:
        raise EncodingError(
            path,
            f"{what} has the lone surrogate U+{ord(surrogate[0]):04X} at position {surrogate.start()},"
            " which is not a character; it was probably decoded with errors='surrogateescape'",
        )


def _member_path(path: str, name: str) -> str:
    return f"{path}.{name}" if _IDENTIFIER.fullmatch(name) is not None else f"{path}[{_cut(name)}]"


def _cut(name: str) -> str:
    return repr(name) if len(name) <= 40 else f"{name[:40]!r}…"


_encoder: Final = json.JSONEncoder(
    default=_plain, check_circular=False, allow_nan=False, ensure_ascii=False, separators=(",", ":")
)
