"""Saying what a value should look like without writing all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from outbox_core.errors import ConfigError

_NOTHING: Final = object()


class Matching:
    """Equal to every value that fits; made by `matching`. Other values compare with it from either side."""

    def __init__(self, expected: object) -> None:
        self.expected = expected

    def __eq__(self, value: object) -> bool:
        return fits(self.expected, value)

    def __repr__(self) -> str:
        return f"matching({self.expected!r})"


def matching(expected: object = _NOTHING, /, **fields: object) -> Matching:
    """What fits, wherever a value is compared: in assertions of this kit, in ``==``, inside a mock's arguments.

        matching(order=7)                                   # a mapping with this field, whatever else it has
        matching({"customer": {"id": 3}}, order=7)          # nested mappings too
        matching(lambda payload: payload["total"] > 100)    # whatever the function says yes to
        matching(total=str)                                 # a value of this type

    A list fits item by item; anything else must be equal. A function that raises LookupError, TypeError or
    AttributeError says no: it was asked about a message of another shape.
    """
    if expected is _NOTHING:
        if not fields:
            raise ConfigError("matching() needs something to match: fields, a mapping, a type or a function")
        return Matching(fields)
    if not fields:
        return Matching(expected)
    if not isinstance(expected, Mapping):
        raise ConfigError(f"fields can only be added to a mapping, got {expected!r}")
    both = dict(cast("Mapping[object, object]", expected))
    both.update(fields.items())
    return Matching(both)


def fits(expected: object, value: object) -> bool:
    """Whether the value is what is expected, in the sense of `matching`."""
    if isinstance(expected, Matching):
        return fits(expected.expected, value)
    # Matchers of other libraries are equal to what fits them, and some of them are classes.
    if expected == value:
        return True
    if isinstance(expected, type):
        return isinstance(value, expected)
    if isinstance(expected, Mapping):
        return isinstance(value, Mapping) and _has_fields(
            cast("Mapping[object, object]", expected), cast("Mapping[object, object]", value)
        )
    if isinstance(expected, list | tuple):
        return isinstance(value, list | tuple) and _fits_each(
            cast("Sequence[object]", expected), cast("Sequence[object]", value)
        )
    if callable(expected):
        return _says_yes(cast("Callable[[object], object]", expected), value)
    return False


def _says_yes(condition: Callable[[object], object], value: object) -> bool:
    try:
        return bool(condition(value))
    except (AttributeError, LookupError, TypeError):
        return False


def _has_fields(expected: Mapping[object, object], value: Mapping[object, object]) -> bool:
    return all(name in value and fits(wanted, value[name]) for name, wanted in expected.items())


def _fits_each(expected: Sequence[object], value: Sequence[object]) -> bool:
    return len(expected) == len(value) and all(map(fits, expected, value))
