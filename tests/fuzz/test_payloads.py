"""Payloads as handlers want them: a value of the declared type, or the place where it does not fit."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from outbox_core.dispatchers.parsing import payload_parser
from outbox_core.errors import PayloadMismatch
from outbox_core.testing.contracts.samples import sample
from tests.fuzz.hostile import SECRET, assert_brief, assert_secretive, fuzzed, spoilt, values


class Colour(Enum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


@dataclass
class Line:
    sku: str
    count: int = 1
    inner: Line | None = None


class Model(BaseModel):
    sku: str
    count: int


KINDS: list[Any] = [
    str, int, float, bool, UUID, date, datetime, time, Decimal, Colour, Number, Line, Model, Any, dict, list, set,
    frozenset[Decimal], dict[str, float], list[Line], set[int], tuple[Line, ...], Literal["a", 1], int | Line | None,
    set[Any], set[Line] | None,
]  # fmt: skip
GOOD = [
    '{"sku": "a", "count": 2}',
    '[{"sku": "a"}]',
    '"2026-01-31"',
    '"red"',
    "1",
    "1.5",
    '{"a": 1e400}',
    "[[1]]",
]
MESSAGE = sample("a.b.c.v1", b"null")

payloads = st.one_of(
    values.map(lambda value: json.dumps(value).encode()),
    spoilt(GOOD).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=20),
)


EXTREME = [
    b"[" * 100_000,
    b"1" + b"0" * 400,
    b"9" * 5000,
    b'"1e9999999999999999999999"',
    b'["a", [], {}]',
    b"[{}, {}]",
    b"\xff",
    b'{"inner": ' * 900 + b"null" + b"}" * 900,
    b'{"sku": "a", "inner": ' * 900 + b"null" + b"}" * 900,
]


@fuzzed
@given(kind=st.sampled_from(KINDS), payload=payloads)
def test_a_payload_fits_or_the_place_is_named(kind: Any, payload: bytes) -> None:
    try:
        payload_parser(kind)(replaced(MESSAGE, payload=payload))
    except PayloadMismatch as refused:
        assert_brief(refused, 2000)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_extreme_fits_nothing_and_breaks_nothing(kind: Any) -> None:
    for payload in EXTREME:
        with suppress(PayloadMismatch):
            payload_parser(kind)(replaced(MESSAGE, payload=payload))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_does_not_fit_is_not_repeated(kind: Any) -> None:
    for value in (SECRET, [SECRET], {"sku": [SECRET]}, {"count": SECRET}, {"sku": "a", "count": SECRET}):
        try:
            payload_parser(kind)(replaced(MESSAGE, payload=json.dumps(value).encode()))
        except PayloadMismatch as refused:
            assert_secretive(refused)
