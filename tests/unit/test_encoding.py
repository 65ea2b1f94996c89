from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_core.encoding import JsonText, encode_json
from outbox_core.errors import EncodingError
from outbox_core.jsonb import MAX_DEPTH

ID = UUID("0190163d-8694-739b-aea5-966c26f8ad91")


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Status(StrEnum):
    PAID = "paid"


class OldStatus(str, Enum):  # noqa: UP042 - the form before StrEnum is what many services have
    PAID = "paid"


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    sku: str
    price: object


@dataclasses.dataclass
class Order:
    id: UUID
    lines: list[Line]


class Point(NamedTuple):
    x: int
    y: int


class Customer(pydantic.BaseModel):
    id: UUID
    balance: Decimal
    since: datetime


class Rate(pydantic.BaseModel):
    value: float


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=200)
@given(values)
def test_json_values_survive_the_round_trip(value: object) -> None:
    assert json.loads(encode_json(value)) == value
    assert JsonText(encode_json(value)).text == encode_json(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("text", '"text"'),
        ("é😀", '"é😀"'),
        ({"a": [1, 2.5, True]}, '{"a":[1,2.5,true]}'),
        (ID, f'"{ID}"'),
        (datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), '"2026-01-02T03:04:05.000678Z"'),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=5, minutes=30))), '"2026-01-01T21:30:00Z"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (time(10, 30), '"10:30:00"'),
        (Decimal("12.30"), '"12.30"'),
        (Decimal("123456789012345678901234567890.10"), '"123456789012345678901234567890.10"'),
        (Decimal("1E+30"), '"1E+30"'),
        (Colour.RED, '"red"'),
        (Level.HIGH, "3"),
        (Status.PAID, '"paid"'),
        (OldStatus.PAID, '"paid"'),
        (Point(1, 2), "[1,2]"),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        (
            Order(ID, [Line("a", Decimal("1.5")), Line("b", Colour.RED)]),
            f'{{"id":"{ID}","lines":[{{"sku":"a","price":"1.5"}},{{"sku":"b","price":"red"}}]}}',
        ),
        (
            [Customer(id=ID, balance=Decimal("1.50"), since=datetime(2026, 1, 2, tzinfo=UTC))],
            f'[{{"id":"{ID}","balance":"1.50","since":"2026-01-02T00:00:00Z"}}]',
        ),
        ({ID: 1, Colour.RED: 2, "x": ID}, f'{{"{ID}":1,"red":2,"x":"{ID}"}}'),
        ({Status.PAID: 1, OldStatus.PAID.name: 2}, '{"paid":1,"PAID":2}'),
        ({1: "a", None: "b", False: "c"}, '{"1":"a","null":"b","false":"c"}'),
        (
            {1: "a", 2.5: "b", None: "c", ID: "d", Level.HIGH: "e"},
            f'{{"1":"a","2.5":"b","null":"c","{ID}":"d","3":"e"}}',
        ),
        ("\\u0000", '"\\\\u0000"'),
        ("\x7f\x01", '"\x7f\\u0001"'),
        (10**4000, "1" + "0" * 4000),
    ],
)
def test_what_people_have_is_encoded(value: object, text: str) -> None:
    assert encode_json(value) == text


def nested(levels: int) -> object:
    value: object = []
    for _ in range(levels - 1):
        value = [value]
    return value


def chain(levels: int) -> Line:
    line = Line("a", 1)
    for _ in range(levels - 1):
        line = Line("a", line)
    return line


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        (
            {"items": [0, 1, 2, {"price": math.nan}]},
            "payload.items[3].price",
            "the float nan is not a number JSON has",
        ),
        ([-math.inf], "payload[0]", "the float -inf is not a number JSON has; send None or a string"),
        (Decimal("NaN"), "payload", "the Decimal NaN is not a number"),
        ({"a": Decimal("-Infinity")}, "payload.a", "the Decimal -Infinity is not a number"),
        (Order(ID, [Line("a", math.inf)]), "payload.lines[0].price", "the float inf"),
        ({"a": [Rate(value=math.nan)]}, "payload.a[0].value", "the float nan"),
        (
            {"at": datetime(2026, 1, 2)},  # noqa: DTZ001
            "payload.at",
            "the datetime is naive, so nobody can tell which moment it means; give it a tzinfo",
        ),
        (
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
            "payload",
            "outside the years 1 to 9999 in UTC",
        ),
        (
            {"t": timedelta(1)},
            "payload.t",
            "timedelta has no one form in JSON; convert it, for example with .total_sec",
        ),
        ({"b": b"x"}, "payload.b", "bytes is not JSON; send raw bytes as body= with a content_type"),
        ([bytearray(b"x")], "payload[0]", "bytearray is not JSON"),
        (
            {"s": {1}},
            "payload.s",
            "set has no order, so equal messages would differ; convert it with sorted()",
        ),
        (frozenset("a"), "payload", "frozenset has no order"),
        ({"x": object()}, "payload.x", "object is not known; convert it to str, int"),
        ({"x": iter([])}, "payload.x", "list_iterator is not known; convert it with list() or dict()"),
        (Line, "payload", "type is not known"),
        ([JsonText("1")], "payload[0]", "JsonText is a whole payload; it cannot stand inside another"),
        ({"a\0": 1}, "payload", "a key has NUL (\\u0000) at position 1"),
        (
            {"a": ["ok", "x\0"]},
            "payload.a[1]",
            "the text has NUL (\\u0000) at position 1, which PostgreSQL cannot store",
        ),
        (Line("\0", 1), "payload.sku", "the text has NUL"),
        ({"a": "\ud800"}, "payload.a", "the text has the lone surrogate U+D800 at position 0"),
        ({"é\udfff": 1}, "payload", "a key has the lone surrogate U+DFFF at position 1"),
        ({"two words": {"ünï": [math.nan]}}, "payload['two words']['ünï'][0]", "nan"),
        ({(1, 2): 1}, "payload", "a key is a tuple; keys must be str (UUID and Enum are converted)"),
        ({"a": {math.nan: 1}}, "payload.a, a key", "the float nan"),
        ({ID: 1, str(ID): 2}, "payload", f"two of its keys are '{ID}' in JSON"),
        ({"n": [10**5000]}, "payload.n[0]", "the int has more than 4300 digits; send it as a string"),
        (nested(MAX_DEPTH + 1), "payload" + "[0]" * MAX_DEPTH, "it is nested more than 200 levels deep"),
        (
            nested(100_000),
            "payload" + "[0]" * MAX_DEPTH,
            "it is nested more than 200 levels deep; make it flatter",
        ),
        (chain(MAX_DEPTH + 1), "payload" + ".price" * MAX_DEPTH, "it is nested more than 200 levels deep"),
    ],
)
def test_what_jsonb_or_a_reader_could_not_take_is_refused_with_its_path(
    value: object, path: str, text: str
) -> None:
    with pytest.raises(EncodingError, match=re.escape(text)) as caught:
        encode_json(value)

    assert caught.value.path == path
    assert caught.value.code == "MESSAGE.ENCODING"
    assert str(caught.value).startswith("cannot encode payload")
    assert len(str(caught.value)) < 400


def test_the_deepest_nesting_allowed_is_encoded() -> None:
    assert encode_json(nested(MAX_DEPTH)) == "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert encode_json(chain(MAX_DEPTH)).count("{") == MAX_DEPTH


@pytest.mark.parametrize("text", ["[" * 500, '"[' * 500, '\\"[{' * 500, "]" * 500, "{}" * 500])
def test_brackets_inside_texts_are_no_nesting(text: str) -> None:
    value = [text, {text: text}] * 200

    assert json.loads(encode_json(value)) == value


def test_many_objects_side_by_side_are_no_nesting() -> None:
    value: object = [{"a": [[], {}], "b": {}} for _ in range(1_000)]

    assert json.loads(encode_json(value)) == value


def test_a_value_that_contains_itself_is_refused() -> None:
    value: dict[str, object] = {}
    value["inner"] = [value]
    line = Order(ID, [])
    line.lines.append(Line("a", line))

    for circular, path in ((value, "payload.inner[0]"), (line, "payload.lines[0].price")):
        with pytest.raises(EncodingError, match="it refers back to a value that contains it") as caught:
            encode_json(circular)
        assert caught.value.path == path


def test_the_same_value_twice_is_not_circular() -> None:
    shared = [ID]

    assert json.loads(encode_json({ID: shared, "b": shared})) == {str(ID): [str(ID)], "b": [str(ID)]}


def test_a_model_that_cannot_be_dumped_is_named() -> None:
    class Holder(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        inner: Iterator[int] | object

    with pytest.raises(
        EncodingError, match="Holder could not be converted: PydanticSerializationError"
    ) as caught:
        encode_json({"h": Holder(inner=object())})

    assert caught.value.path == "payload.h"


class Broken(Mapping[str, object]):
    """A mapping of the user's whose members cannot be had."""

    def __getitem__(self, key: str) -> object:
        raise KeyError("4111-1111")

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


class BrokenDict(dict[str, object]):
    def items(self) -> Any:
        raise LookupError("4111-1111")


def test_whatever_a_mapping_raises_is_an_encoding_error_with_its_path() -> None:
    with pytest.raises(EncodingError) as caught:
        encode_json({"orders": [1, Broken()]})
    assert str(caught.value) == "cannot encode payload.orders[1]: Broken could not be converted: KeyError"
    assert caught.value.path == "payload.orders[1]"
    with pytest.raises(EncodingError, match=r"^cannot encode payload: the encoder failed with LookupError$"):
        encode_json([BrokenDict(a=1)])


def test_models_are_only_looked_for_when_pydantic_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pydantic")

    with pytest.raises(EncodingError, match="Rate is not known"):
        encode_json(Rate(value=1.0))


def test_an_error_never_shows_the_value() -> None:
    secret = "4111-1111-1111-1111"

    for value in ({"card": secret + "\0"}, {"card": [secret, math.nan]}, {"card": {secret}}):
        with pytest.raises(EncodingError) as caught:
            encode_json(value)
        assert secret not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_long_path_is_cut_in_the_middle() -> None:
    with pytest.raises(EncodingError) as caught:
        encode_json({"a" * 1_000: {"b" * 1_000: {"price": math.nan}}})

    assert len(str(caught.value)) < 400
    assert ".price: the float nan" in str(caught.value)
    assert caught.value.path == f"payload.{'a' * 1_000}.{'b' * 1_000}.price"
