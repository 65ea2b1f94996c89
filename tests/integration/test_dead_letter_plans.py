"""Plans: what they say would change, what they warn of, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from outbox_core.dead_letters import DeadLetters, ExceededWindow, Filter
from outbox_core.errors import (
    ConfigError,
    InvalidTopicPattern,
    UnboundedFilter,
)
from tests.integration.yard import TABLE, TOPIC, Yard, mixed

pytestmark = [pytest.mark.store, pytest.mark.asyncio]


async def test_a_plan_says_what_would_change_and_changes_nothing(yard: Yard) -> None:
    await mixed(yard)
    before = await yard.rows()
    plan = await yard.letters.plan(Filter(topic="shop.order.**"))
    assert plan.total == 5
    assert plan.topics == {"shop.order.placed.v1": 3, "shop.order.placed.v2": 2}
    assert list(plan.topics) == ["shop.order.placed.v1", "shop.order.placed.v2"]
    assert plan.oldest is not None
    assert plan.newest is not None
    assert plan.newest - plan.oldest > timedelta(seconds=9000)
    assert plan.exceeded == ()
    text = str(plan)
    assert "5 dead letter(s) of shop.orders_outbox" in text
    assert "3 shop.order.placed.v1" in text
    assert await yard.rows() == before
    assert await yard.letters.history() == []
    empty = await yard.letters.plan(Filter(topic="nothing.**"))
    assert (empty.total, empty.topics, empty.oldest, empty.newest) == (0, {}, None, None)


async def test_a_plan_warns_of_consumers_that_may_have_forgotten(yard: Yard) -> None:
    await yard.add("dead", 2, age=60, earlier=60)
    await yard.add("dead", 3, age=60, earlier=5000)
    windows = {"jetstream": timedelta(seconds=10), "billing": timedelta(hours=1), "ledger": timedelta(days=7)}
    letters = DeadLetters(yard.admin_store, TABLE, dedupe_windows=windows)
    plan = await letters.plan(Filter(topic=TOPIC))
    assert plan.exceeded == (
        ExceededWindow("jetstream", timedelta(seconds=10), 5),
        ExceededWindow("billing", timedelta(hours=1), 3),
    )
    assert "3 are older than the 1:00:00 for which billing remembers" in str(plan)


async def test_a_plan_without_a_bound_is_refused(yard: Yard) -> None:
    await yard.add("dead", 2)
    for unbounded in (Filter(), Filter(topic="**")):
        with pytest.raises(UnboundedFilter, match="everything=True"):
            await yard.letters.plan(unbounded)
    assert (await yard.letters.plan(Filter(everything=True))).total == 2


async def test_filters_that_make_no_sense(yard: Yard) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    refused: list[dict[str, Any]] = [
        {"since": naive},
        {"event_ids": []},
        {"event_ids": [uuid4() for _ in range(1001)]},
        {"code": ""},
        {"code": "TX.TIMEOUT no answer"},
        {"topic": TOPIC, "everything": True},
    ]
    for conditions in refused:
        with pytest.raises(ConfigError):
            Filter(**conditions)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for since in (noon, noon + timedelta(hours=1)):
        with pytest.raises(ConfigError, match="since must be before until, got 2026-01-01T1"):
            Filter(since=since, until=noon)
    with pytest.raises(InvalidTopicPattern):
        Filter(topic="shop.ord*")
    with pytest.raises(ConfigError, match="error code"):
        await yard.letters.plan(Filter(code="TX.TIMEOUT"), published=True)
    for limit in (0, 1001):
        with pytest.raises(ConfigError, match="limit"):
            await yard.letters.list(limit=limit)


@pytest.mark.parametrize("bad", [{"actor": " ", "reason": "x"}, {"actor": "x", "reason": ""}])
async def test_nothing_is_done_without_somebody_and_a_reason(yard: Yard, bad: dict[str, Any]) -> None:
    await yard.add("dead", key="k")
    plan = await yard.letters.plan(Filter(topic=TOPIC))
    before = await yard.rows()
    with pytest.raises(ConfigError, match="for the record"):
        await yard.letters.replay(plan, **bad)
    with pytest.raises(ConfigError, match="for the record"):
        await yard.letters.discard(plan, **bad)
    with pytest.raises(ConfigError, match="for the record"):
        await yard.letters.release("k", **bad)
    assert await yard.rows() == before
