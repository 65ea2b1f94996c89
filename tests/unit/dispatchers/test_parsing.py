"""Typed handlers: payloads become values of their declared type, or say where they do not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pydantic
import pytest

from outbox_core.dispatchers.event_bus import EventBus
from outbox_core.dispatchers.parsing import payload_parser
from outbox_core.errors import ConfigError, PayloadMismatch, PermanentError
from outbox_core.message import Meta
from outbox_core.testing.contracts.samples import sample


class Currency(Enum):
    EURO = "EUR"


@dataclass(frozen=True)
class Line:
    article: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    id: UUID
    price: Decimal
    currency: Currency
    placed_at: datetime
    lines: list[Line]
    due: date | None = None
    weights: dict[str, float] = field(default_factory=dict)
    channel: Literal["web", "shop"] = "web"
    parent: Order | None = None


class Model(pydantic.BaseModel):
    id: UUID
    count: int


ID = "01890a5d-ac96-774b-bcce-b302099a8057"
ORDER: dict[str, Any] = {
    "id": ID,
    "price": "9.90",
    "currency": "EUR",
    "placed_at": "2030-01-02T03:04:05Z",
    "lines": [{"article": "a", "count": 2}, {"article": "b"}],
    "due": "2030-02-01",
    "weights": {"net": 2},
    "channel": "shop",
    "parent": None,
    "not declared": [1],
}


def parse(kind: Any, payload: object) -> Any:
    return payload_parser(kind)(sample("a.b", json.dumps(payload).encode()))


def test_a_dataclass_is_made_of_its_members() -> None:
    parent = {**ORDER, "parent": ORDER}
    made = parse(Order, parent)
    expected = Order(
        id=UUID(ID),
        price=Decimal("9.90"),
        currency=Currency.EURO,
        placed_at=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
        lines=[Line("a", 2), Line("b")],
        due=date(2030, 2, 1),
        weights={"net": 2.0},
        channel="shop",
    )
    assert made.parent == expected
    assert made.lines == expected.lines


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"id": "secret value"}, "payload.id", "is not a UUID"),
        ({"price": True}, "payload.price", "must be a string, got a boolean"),
        ({"price": "secret value"}, "payload.price", "is not a Decimal"),
        ({"currency": "USD"}, "payload.currency", "is not a Currency"),
        ({"lines": {}}, "payload.lines", "must be an array, got an object"),
        ({"lines": [{"article": "a"}, {"count": 1}]}, "payload.lines[1]", "lacks article"),
        ({"lines": [{"article": "a", "count": 1.5}]}, "payload.lines[0].count", "must be a whole number"),
        ({"lines": [{"article": "a", "count": True}]}, "payload.lines[0].count", "got a boolean"),
        ({"weights": {"net": "2"}}, "payload.weights.net", "must be a number, got a string"),
        ({"channel": "phone"}, "payload.channel", "is none of 'web', 'shop'"),
        ({"due": 5}, "payload.due", "is no"),
        ({"parent": {**ORDER, "id": 5}}, "payload.parent.id", "must be a string"),
    ],
)
def test_what_does_not_fit_is_named_by_its_place_and_never_shown(change: Any, path: str, says: str) -> None:
    with pytest.raises(PayloadMismatch) as raised:
        parse(Order, {**ORDER, **change})
    assert raised.value.path == path
    assert says in str(raised.value)
    assert "secret value" not in str(raised.value)
    assert isinstance(raised.value, PermanentError)
    assert raised.value.code == "EVENTBUS.PAYLOAD_MISMATCH"


def test_missing_members_are_named() -> None:
    with pytest.raises(PayloadMismatch, match="lacks id, lines, which Order needs"):
        parse(Order, {name: value for name, value in ORDER.items() if name not in ("id", "lines")})


@pytest.mark.parametrize(
    ("kind", "payload", "made"),
    [
        (dict, {"a": 1}, {"a": 1}),
        (dict[str, Any], {"a": 1}, {"a": 1}),
        (list[int], [1, 2], [1, 2]),
        (tuple[str, ...], ["a"], ("a",)),
        (Sequence[str], ["a"], ["a"]),
        (frozenset[int], [1, 1], frozenset({1})),
        (str, "a", "a"),
        (float, 1, 1.0),
        (int | str, "1", "1"),
        (None, None, None),
        (object, [None], [None]),
        (Decimal, 1.5, Decimal("1.5")),
    ],
)
def test_plain_types(kind: Any, payload: object, made: object) -> None:
    assert parse(kind if kind is not None else type(None), payload) == made


def test_a_pydantic_model_validates_itself() -> None:
    assert parse(Model, {"id": ID, "count": "3"}) == Model(id=UUID(ID), count=3)
    with pytest.raises(PayloadMismatch, match=r"is not a Model: id: uuid_parsing; count: missing") as raised:
        parse(Model, {"id": "secret value"})
    assert "secret value" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_a_body_that_is_not_json_does_not_fit() -> None:
    for payload in (b"\xff\xfe", b"{", b""):
        with pytest.raises(PayloadMismatch, match="is not JSON"):
            payload_parser(Line)(sample("a.b", payload))
    assert payload_parser(bytes)(sample("a.b", b"\xff")) == b"\xff"


def test_a_dataclass_that_refuses_its_members() -> None:
    @dataclass
    class Positive:
        number: int

        def __post_init__(self) -> None:
            if self.number <= 0:
                raise ValueError(f"{self.number} is not positive")

    with pytest.raises(PayloadMismatch, match="is not a Positive: ValueError"):
        payload_parser(Positive)(sample("a.b", b'{"number": -5}'))


@pytest.mark.parametrize("kind", [complex, dict[int, str], tuple[int, str], "a string"])
def test_a_type_that_json_cannot_become_is_refused_before_any_message(kind: Any) -> None:
    with pytest.raises(ConfigError, match="a payload cannot be made into"):
        payload_parser(kind)


@pytest.mark.asyncio
async def test_handlers_of_both_kinds_get_their_types() -> None:
    bus, got = EventBus(), list[Any]()

    @bus.on("lines.**")
    async def dataclass_and_meta(line: Line, meta: Meta) -> None:
        got.append((line, meta.topic))

    @bus.on("models.**")
    def model_alone(model: Model) -> None:
        got.append(model)

    await bus.dispatch(sample("lines.v1", b'{"article": "a"}'))
    await bus.dispatch(sample("models.v1", json.dumps({"id": ID, "count": 1}).encode()))
    assert got == [(Line("a"), "lines.v1"), Model(id=UUID(ID), count=1)]
    with pytest.raises(PayloadMismatch):
        await bus.dispatch(sample("lines.v1", b"[]"))
