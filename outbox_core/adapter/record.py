"""Read a record that a consumer got from its client, with a clear error for anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from outbox_core.errors import UnsupportedRecord

_ABSENT: Final = object()


def part_of(record: object, name: str, *, expected: str) -> object:
    """An attribute of the record. Raises `UnsupportedRecord` when it is missing or a method, as in other clients."""
    value: object = getattr(record, name, _ABSENT)
    if value is _ABSENT or callable(value):
        raise UnsupportedRecord(expected, record)
    return value


def body_of(record: object, name: str, *, expected: str, hint: str = "") -> bytes:
    """The bytes in an attribute of the record. Raises `UnsupportedRecord`, with the hint, for anything else."""
    value = part_of(record, name, expected=expected)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    raise UnsupportedRecord(
        expected, record, f"its {name} is of type {type(value).__name__} and must be bytes{hint}"
    )


def headers_of(record: object, *, expected: str) -> dict[str, object]:
    """The record's ``headers``, a mapping or None. Raises `UnsupportedRecord` for anything else."""
    value = part_of(record, "headers", expected=expected)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UnsupportedRecord(expected, record, f"its headers are of type {type(value).__name__}")
    return {str(name): each for name, each in cast("Mapping[object, object]", value).items()}
