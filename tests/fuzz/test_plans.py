"""Plans as files: made by one person, kept somewhere, carried out by another."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbox_core.cli.plans import read_plan
from outbox_core.dead_letters import Action
from outbox_core.errors import ConfigError
from outbox_core.letters import ExceededWindow, Filter, Plan
from outbox_core.table import TableName
from tests.fuzz.hostile import assert_brief, fuzzed, spoilt, texts, values

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
PLAN = Plan(
    id=UUID(int=7),
    table=TableName.parse("shop.orders_outbox"),
    filter=Filter(
        topic="shop.**", since=NOON, code="TX.TIMEOUT", event_ids=[UUID(int=1)], tenant_id=UUID(int=2)
    ),
    published=False,
    as_of=NOON,
    total=3,
    topics={"shop.order.placed.v1": 3},
    oldest=NOON,
    newest=NOON,
    exceeded=(ExceededWindow("billing", timedelta(days=7), 1),),
)
DOCUMENT: dict[str, Any] = {"action": "replay", "plan": PLAN.as_json()}
EXTREME = [
    1e999,
    float("nan"),
    10**400,
    -1,
    "0001-01-01T00:00:00+23:59",
    "2026-01-31T12:00:00",
    "\ud800",
    [],
    {},
]


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """The document with something else in one or two of its places."""
    document = json.loads(json.dumps(DOCUMENT))
    plan = document["plan"]
    for holder in draw(
        st.lists(
            st.sampled_from([document, plan, plan["filter"], plan["exceeded"][0]]), min_size=1, max_size=2
        )
    ):
        name = draw(st.sampled_from(list(holder)))
        holder[name] = draw(st.one_of(values, st.sampled_from(EXTREME), spoilt(str(holder[name]))))
    return document


def test_a_plan_comes_back_as_it_was() -> None:
    assert Plan.from_json(json.loads(json.dumps(PLAN.as_json()))) == PLAN


@fuzzed
@given(st.one_of(documents(), values.map(lambda value: {"action": "replay", "plan": value})))
@example({"plan": {**PLAN.as_json(), "total": 1e999}})
@example({"plan": {**PLAN.as_json(), "exceeded": [{"consumer": "a", "window": 1e300, "count": 1}]}})
@example({"plan": {**PLAN.as_json(), "as_of": "2026-01-31T12:00:00"}})
@example({"plan": {**PLAN.as_json(), "filter": {"everything": "no"}}})
@example({"plan": {**PLAN.as_json(), "topics": {"\ud800": 1}}})
def test_a_record_is_a_plan_or_refused(document: Any) -> None:
    try:
        plan = Plan.from_json(document["plan"])
    except ConfigError as refused:
        assert_brief(refused)
        return
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan
    assert plan.as_of.tzinfo is not None
    assert plan.filter.bounded or plan.filter.everything is True
    assert plan.total >= 0
    str(plan).encode()


@fuzzed
@given(st.one_of(texts, documents().map(json.dumps), spoilt(json.dumps(DOCUMENT))))
@example("[" * 100_000)
@example("9" * 5000)
@example("null")
def test_a_file_is_a_plan_or_refused(text: str) -> None:
    file = io.StringIO(text)
    file.name = "plan.json"  # type: ignore[attr-defined]
    try:
        read_plan(file, Action.REPLAY)
    except click.UsageError as refused:
        assert_brief(refused)


@fuzzed
@given(st.dictionaries(
    st.sampled_from(["topic", "tenant_id", "since", "until", "code", "event_ids", "everything"]),
    st.one_of(values, st.datetimes(), st.uuids(), st.lists(st.uuids(), max_size=2), st.sampled_from(EXTREME)),
    max_size=3,
))  # fmt: skip
def test_a_filter_is_made_or_refused(conditions: dict[str, Any]) -> None:
    try:
        wanted = Filter(**conditions)
    except ConfigError as refused:
        assert_brief(refused)
        return
    json.dumps(wanted.as_json())
    assert Filter.from_json(wanted.as_json()).as_json() == wanted.as_json()


@pytest.mark.parametrize("action", ["discard", "clean", "none"])
def test_a_plan_for_another_action_is_refused(action: str) -> None:
    file = io.StringIO(json.dumps({**DOCUMENT, "action": action}))
    file.name = "plan.json"  # type: ignore[attr-defined]
    with pytest.raises(click.UsageError):
        read_plan(file, Action.REPLAY)
