"""Making a value of a declared type from a JSON payload, with an error that says where it does not fit."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from outbox_core.errors import ConfigError, PayloadMismatch

if TYPE_CHECKING:
    from outbox_core.meta import DispatchedMessage

Parse: TypeAlias = Callable[[object, str], Any]
"""Takes a value read from JSON and its path, and returns it as the declared type or raises `PayloadMismatch`."""

_FROM_TEXT: Final[dict[type, Callable[[str], Any]]] = {
    UUID: UUID,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    Decimal: Decimal,
}
_LISTS: Final = (list, tuple, set, frozenset, Sequence)
_NAMES: Final = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def payload_parser(kind: Any) -> Callable[[DispatchedMessage], Any]:
    """A function from a message to its payload as ``kind``; raises `ConfigError` now for a type it cannot make.

    Makes dataclasses, pydantic models, JSON's own types, UUIDs, dates, times, decimals, enumerations and literals, and
    collections, optionals and unions of them; ``bytes`` is the payload as it is. Members that a dataclass does not
    declare are ignored, so that a producer may add some.
    """
    if kind is bytes:
        return lambda message: message.payload
    validate = getattr(kind, "model_validate_json", None)
    if isinstance(kind, type) and callable(validate):
        return lambda message: _validated(kind.__name__, validate, message)
    parse = _parser(kind)

    def parsed(message: DispatchedMessage) -> Any:
        try:
            return parse(_json(message), "payload")
        except RecursionError:
            raise PayloadMismatch("payload", "is nested too deeply") from None

    return parsed


def _json(message: DispatchedMessage) -> object:
    try:
        return message.json()
    except ValueError as error:
        # Not chained: the original holds the whole text.
        raise PayloadMismatch("payload", f"is not JSON: {type(error).__name__}") from None


def _validated(name: str, validate: Callable[[bytes], Any], message: DispatchedMessage) -> Any:
    try:
        return validate(message.payload)
    except ValueError as error:
        # Not chained, and without the inputs: both would show the payload.
        errors = getattr(error, "errors", None)
        details: Any = errors(include_input=False, include_url=False) if callable(errors) else []
        shown = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'payload'}: {one['type']}" for one in details[:5]
        )
        raise PayloadMismatch("payload", f"is not a {name}: {shown or type(error).__name__}") from None


def _parser(kind: Any, making: dict[Any, list[Parse]] | None = None) -> Parse:
    """The parser of a type. ``making`` holds the dataclasses under way, which may contain themselves."""
    making = {} if making is None else making
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return _unchanged
    if origin is Annotated:
        return _parser(arguments[0], making)
    if origin is Literal:
        return _literal(arguments)
    if origin in (Union, types.UnionType):
        return _union(kind, [_parser(one, making) for one in arguments])
    if origin in (dict, Mapping) or kind in (dict, Mapping):
        return _mapping(kind, _parser(arguments[1], making) if arguments else None)
    if origin in _LISTS or kind in _LISTS:
        if origin is tuple and arguments and (len(arguments) != 2 or arguments[1] is not Ellipsis):
            raise _unusable(kind, "write tuple[X, ...] or a list")
        return _sequence(origin or kind, _parser(arguments[0], making) if arguments else None)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, making)
    if isinstance(kind, type):
        return _scalar(kind)
    raise _unusable(kind, "use a dataclass, a pydantic model or plain types")


def _unchanged(value: object, _: str) -> object:
    return value


def _scalar(kind: type[Any]) -> Parse:
    if issubclass(kind, Enum):
        return lambda value, path: _converted(kind, value, path, f"is not a {kind.__name__}")
    if kind in (str, int, float, bool, type(None)):
        return lambda value, path: _plain(kind, value, path)
    convert = _FROM_TEXT.get(kind)
    if convert is None:
        raise _unusable(kind, "use a dataclass, a pydantic model or plain types")

    def from_text(value: object, path: str) -> Any:
        numeric = kind is Decimal and isinstance(value, int | float) and not isinstance(value, bool)
        text = str(value) if numeric else _plain(str, value, path)
        return _converted(convert, text, path, f"is not a {kind.__name__}")

    return from_text


def _plain(kind: type, value: object, path: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return _converted(float, value, path, "is too large a number")
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise PayloadMismatch(path, f"must be {_named(kind)}, got {_named(type(value))}")


def _converted(convert: Callable[[Any], Any], value: object, path: str, otherwise: str) -> Any:
    try:
        return convert(value)
    except (ValueError, OverflowError, InvalidOperation):
        raise PayloadMismatch(path, otherwise) from None


def _literal(allowed: tuple[Any, ...]) -> Parse:
    def literal(value: object, path: str) -> Any:
        for one in allowed:
            if type(one) is type(value) and one == value:
                return value
        raise PayloadMismatch(path, f"is none of {', '.join(map(repr, allowed))}")

    return literal


def _union(kind: Any, parsers: Sequence[Parse]) -> Parse:
    def union(value: object, path: str) -> Any:
        failures: list[PayloadMismatch] = []
        for parse in parsers:
            try:
                return parse(value, path)
            except PayloadMismatch as error:
                failures.append(error)
        # The one that got furthest into the value is the one that was meant.
        furthest = max(failures, key=lambda error: len(error.path))
        raise furthest if len(furthest.path) > len(path) else PayloadMismatch(path, f"is no {kind}")

    return union


def _mapping(kind: Any, parse: Parse | None) -> Parse:
    if parse is not None and get_args(kind)[0] is not str:
        raise _unusable(kind, "the keys of a JSON object are strings; write dict[str, …]")

    def mapping(value: object, path: str) -> Any:
        members: dict[str, object] = _plain(dict, value, path)
        if parse is None:
            return members
        return {name: parse(member, f"{path}.{name}") for name, member in members.items()}

    return mapping


def _sequence(kind: Any, parse: Parse | None) -> Parse:
    make = cast("Callable[[list[Any]], Any]", list if kind is Sequence else kind)

    def sequence(value: object, path: str) -> Any:
        items: list[object] = _plain(list, value, path)
        found = [parse(item, f"{path}[{at}]") for at, item in enumerate(items)] if parse else items
        try:
            return make(found)
        except TypeError:
            raise PayloadMismatch(path, "has arrays or objects in it, of which no set can be made") from None

    return sequence


def _dataclass(kind: type, making: dict[Any, list[Parse]]) -> Parse:
    if kind in making:
        under_way = making[kind]
        return lambda value, path: under_way[0](value, path)
    making[kind] = []
    hints = resolved_hints(kind, kind.__name__)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    parsers = {field.name: _parser(hints[field.name], making) for field in fields}
    missing = dataclasses.MISSING
    required = [
        field.name for field in fields if field.default is missing and field.default_factory is missing
    ]

    def build(value: object, path: str) -> Any:
        members: dict[str, object] = _plain(dict, value, path)
        absent = [name for name in required if name not in members]
        if absent:
            raise PayloadMismatch(path, f"lacks {', '.join(absent)}, which {kind.__name__} needs")
        given = {
            name: parse(members[name], f"{path}.{name}") for name, parse in parsers.items() if name in members
        }
        try:
            return kind(**given)
        except ValueError as error:
            raise PayloadMismatch(path, f"is not a {kind.__name__}: {type(error).__name__}") from error

    making[kind].append(build)
    return build


def resolved_hints(holder: Any, name: str) -> dict[str, Any]:
    """The annotations of a class or function as types; raises `ConfigError` for one that only a checker understands."""
    try:
        return get_type_hints(holder, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"the annotations of {name} cannot be read: {error};"
            " import that name at run time too, not only for type checkers"
        ) from error
    except (AttributeError, SyntaxError, TypeError) as error:
        raise ConfigError(
            f"the annotations of {name} cannot be read: {type(error).__name__}: {error};"
            " write them so that Python itself can evaluate them"
        ) from error


def _unusable(kind: Any, hint: str) -> ConfigError:
    return ConfigError(f"a payload cannot be made into {getattr(kind, '__name__', kind)}: {hint}")


def _named(kind: type) -> str:
    if kind in (int, float):
        return "a number" if kind is float else "a whole number"
    return _NAMES.get(kind, kind.__name__)
