"""Dead letters: seen without their content, counted, grouped, planned for; and what holds messages up put right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import State, schema
from outbox_core.dead_letters import Action, DeadLetters, ExceededWindow, Filter, LetterPlace, Page
from outbox_core.errors import (
    ConfigError,
    InvalidTopicPattern,
    PermissionDenied,
    SchemaMissing,
    SchemaTooOld,
    UnboundedFilter,
)
from outbox_core.relay import Relay
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.stores.postgres.upkeep import PostgresUpkeep
from tests.integration.relay.bench import QUICK, ignore, until
from tests.integration.yard import BECAUSE, NAME, NIL, TABLE, TOPIC, Yard, opened, role
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

OTHER = UUID("22222222-2222-2222-2222-222222222222")


@pytest_asyncio.fixture
async def yard(database: Database) -> AsyncIterator[Yard]:
    async with opened(database) as yard:
        yield yard


async def mixed(yard: Yard) -> None:
    await yard.add("dead", 3, topic="shop.order.placed.v1", error="TX.TIMEOUT no answer", age=10_000)
    await yard.add("dead", 2, topic="shop.order.placed.v2", error="PROVIDER.PERMANENT too large", age=500)
    await yard.add("dead", 1, topic="shop.invoice.sent.v1", error="TX.TIMEOUT no answer", tenant=OTHER, age=5)
    await yard.add("published", 7)
    await yard.add("pending", 7)


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        ({}, 6),
        ({"topic": "shop.order.placed.v1"}, 3),
        ({"topic": "shop.order.*.*"}, 5),
        ({"topic": "shop.**"}, 6),
        ({"topic": "**.v1"}, 4),
        ({"topic": "*.v1"}, 0),
        ({"topic": "shop.order.placed"}, 0),
        ({"tenant_id": OTHER}, 1),
        ({"tenant_id": NIL, "code": "TX.TIMEOUT"}, 3),
        ({"code": "TX.TIMEOUT"}, 4),
        ({"code": "TX"}, 0),
        ({"since": 600}, 3),
        ({"until": 600}, 3),
        ({"since": 600, "until": 100}, 2),
    ],
)
async def test_filters(yard: Yard, conditions: dict[str, Any], count: int) -> None:
    await mixed(yard)
    moments: dict[str, Any] = {
        name: ago(seconds) for name, seconds in conditions.items() if name in {"since", "until"}
    }
    given: dict[str, Any] = {**conditions, **moments}
    wanted = Filter(**given)
    assert await yard.letters.count(wanted) == count
    assert len((await yard.letters.list(wanted)).messages) == count
    assert (await yard.letters.plan(wanted if conditions else Filter(everything=True))).total == count
    assert sum(group.count for group in await yard.letters.group("topic", wanted)) == count


async def test_by_event_id(yard: Yard) -> None:
    first, _, third = await yard.add("dead", 3)
    (published,) = await yard.add("published")
    wanted = Filter(event_ids=[first, third, published, uuid4()])
    assert await yard.letters.count(wanted) == 2
    assert (await yard.letters.plan(wanted)).total == 2
    assert (await yard.letters.plan(wanted, published=True)).total == 1


async def test_pages_have_each_letter_once_even_while_others_die(yard: Yard) -> None:
    await yard.add("dead", 7)
    seen: list[int] = []
    after: LetterPlace | None = None
    for expected in (3, 3, 3, 1):
        page: Page = await yard.letters.list(after=after, limit=3)
        assert len(page.messages) == expected
        seen += [message.sequence for message in page.messages]
        after = page.next
        if len(seen) == 3:
            await yard.add("dead", 3, age=1)
    assert after is None
    assert seen == sorted(set(seen))
    assert len(seen) == 10


async def test_groups(yard: Yard) -> None:
    await mixed(yard)
    by_code = await yard.letters.group("code")
    assert [(group.value, group.count) for group in by_code] == [("TX.TIMEOUT", 4), ("PROVIDER.PERMANENT", 2)]
    assert by_code[0].oldest < by_code[0].newest
    assert [(group.value, group.count) for group in await yard.letters.group("tenant")] == [
        (str(NIL), 5),
        (str(OTHER), 1),
    ]
    assert [group.count for group in await yard.letters.group("topic", limit=1)] == [3]
    hours = await yard.letters.group("hour", Filter(code="PROVIDER.PERMANENT"))
    assert [group.value for group in hours] == [f"{hours[0].oldest:%Y-%m-%dT%H:00Z}"]
    with pytest.raises(ConfigError, match="code, topic, tenant, hour"):
        await yard.letters.group("weekday")


async def test_content_is_shown_only_when_asked_for(yard: Yard) -> None:
    (event_id,) = await yard.add("dead", key="k")
    message = await yard.letters.show(event_id)
    assert message is not None
    assert (message.state, message.key, message.attempts) == (State.DEAD, "k", 25)
    assert (message.payload, message.headers) == (None, None)
    (listed,) = (await yard.letters.list()).messages
    assert listed == message
    whole = await yard.letters.show(event_id, payload=True)
    assert whole is not None
    assert whole.payload == b'{"secret": 1}'
    assert whole.headers == {"h": "hidden"}
    assert await yard.letters.show(uuid4()) is None


async def test_a_viewer_sees_everything_but_content(yard: Yard, unique_name: str) -> None:
    (event_id,) = await yard.add("dead")
    async with role(yard, "viewer", unique_name) as upkeep:
        letters = DeadLetters(upkeep, TABLE)
        assert await letters.count() == 1
        assert (await letters.list()).messages[0].event_id == event_id
        assert (await letters.group("code"))[0].count == 1
        assert await letters.show(event_id) is not None
        assert await letters.history() == []
        plan = await letters.plan(Filter(event_ids=[event_id]))
        assert plan.total == 1
        with pytest.raises(PermissionDenied):
            await letters.show(event_id, payload=True)
        with pytest.raises(PermissionDenied):
            await letters.replay(plan, **BECAUSE)
        with pytest.raises(PermissionDenied):
            await letters.release("k", **BECAUSE)


async def test_an_operator_acts_without_seeing_content(yard: Yard, unique_name: str) -> None:
    first, second, third = await yard.add("dead", 3)
    (done,) = await yard.add("published")
    (waiting,) = await yard.add("pending", key="k")
    async with role(yard, "operator", unique_name) as upkeep:
        letters = DeadLetters(upkeep, TABLE)
        replay = await letters.plan(Filter(event_ids=[first]))
        assert (await letters.replay(replay, **BECAUSE)).changed == 1
        again = await letters.plan(Filter(event_ids=[done]), published=True)
        assert (await letters.replay(again, **BECAUSE)).changed == 1
        discard = await letters.plan(Filter(event_ids=[second]))
        assert (await letters.discard(discard, **BECAUSE)).changed == 1
        assert (await letters.postpone([waiting], delay=timedelta(hours=1), **BECAUSE)).changed == 1
        assert await letters.release("k", **BECAUSE) is not None
        with pytest.raises(PermissionDenied):
            await letters.show(third, payload=True)


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
    letters = DeadLetters(yard.upkeep, TABLE, dedupe_windows=windows)
    plan = await letters.plan(Filter(topic=TOPIC))
    assert plan.exceeded == (
        ExceededWindow("jetstream", timedelta(seconds=10), 5),
        ExceededWindow("billing", timedelta(hours=1), 3),
    )
    assert "3 are older than the 1:00:00 for which billing remembers" in str(plan)


async def test_a_plan_without_a_bound_is_refused(yard: Yard) -> None:
    await yard.add("dead", 2)
    with pytest.raises(UnboundedFilter, match="everything=True"):
        await yard.letters.plan(Filter())
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
    with pytest.raises(InvalidTopicPattern):
        Filter(topic="shop.ord*")
    with pytest.raises(ConfigError, match="error code"):
        await yard.letters.plan(Filter(code="TX.TIMEOUT"), published=True)
    for limit in (0, 1001):
        with pytest.raises(ConfigError, match="limit"):
            await yard.letters.list(limit=limit)


async def test_release_replays_a_dead_head(yard: Yard) -> None:
    head, second = await yard.add("dead", 2, key="k")
    await yard.add("pending", key="k")
    released = await yard.letters.release("k", **BECAUSE)
    assert released is not None
    assert (released.event_id, released.state, released.attempts, released.replays) == (
        head,
        State.PENDING,
        0,
        1,
    )
    rows = await yard.rows()
    assert rows[head]["available_at"] <= datetime.now(UTC)
    assert rows[second]["dead_at"] is not None
    assert (await yard.letters.release("k", **BECAUSE)) is not None
    assert (await yard.rows())[second]["dead_at"] is None
    actions = [(record.action, record.changed) for record in await yard.letters.history()]
    assert actions == [(Action.RELEASE, 1), (Action.RELEASE, 1)]


async def test_release_brings_a_waiting_head_forward_and_changes_nothing_else(yard: Yard) -> None:
    (head,) = await yard.add("pending", key="k")
    await yard.connection.execute(
        "UPDATE shop.orders_outbox SET available_at = now() + interval '9 hours', attempts = 7, last_error = 'X.Y z'"
    )
    released = await yard.letters.release("k", **BECAUSE)
    assert released is not None
    assert (released.event_id, released.attempts, released.replays, released.last_error) == (
        head, 7, 0, "X.Y z",
    )  # fmt: skip
    assert released.available_at <= datetime.now(UTC)


async def test_release_leaves_a_head_in_flight_and_other_keys_alone(yard: Yard) -> None:
    await yard.add("in_flight", key="k")
    await yard.add("dead", key="other")
    await yard.add("dead", key="k", tenant=OTHER)
    before = await yard.rows()
    assert await yard.letters.release("k", **BECAUSE) is None
    assert await yard.letters.release("nobody's", **BECAUSE) is None
    assert await yard.rows() == before
    assert [record.changed for record in await yard.letters.history()] == [0, 0]


async def test_a_released_key_goes_on_in_a_relay_that_blocks(yard: Yard) -> None:
    await yard.add("dead", key="k")
    behind = await yard.add("pending", 3, key="k")
    await yard.add("pending", key="free")

    async def published(count: int) -> bool:
        return (await yard.states()).get("published") == count

    async with Relay(yard.dsn, table=TABLE, dispatcher=ignore, on_dead="block", **QUICK):
        await until(lambda: published(1))
        rows = await yard.rows()
        assert all(rows[each]["published_at"] is None for each in behind)
        await yard.letters.release("k", **BECAUSE)
        await until(lambda: published(5))


async def test_postponing(yard: Yard) -> None:
    pending = await yard.add("pending", 2)
    others = [*await yard.add("dead"), *await yard.add("in_flight"), *await yard.add("published")]
    before = await yard.rows()
    until_then = datetime.now(UTC) + timedelta(days=2)
    record = await yard.letters.postpone([*pending, *others], until=until_then, **BECAUSE)
    assert (record.action, record.planned, record.changed, record.skipped) == (Action.POSTPONE, 5, 2, 3)
    rows = await yard.rows()
    for event_id in pending:
        assert rows[event_id]["available_at"] == until_then
        changed = {name for name in rows[event_id].keys() if rows[event_id][name] != before[event_id][name]}  # noqa: SIM118
        assert changed == {"available_at"}
    for event_id in others:
        assert rows[event_id] == before[event_id]
    await yard.letters.postpone(pending, delay=timedelta(hours=1), **BECAUSE)
    moment = (await yard.rows())[pending[0]]["available_at"] - datetime.now(UTC)
    assert timedelta(minutes=59) < moment <= timedelta(hours=1)
    await yard.letters.postpone(pending, delay=timedelta(), **BECAUSE)
    assert (await yard.rows())[pending[0]]["available_at"] <= datetime.now(UTC)


async def test_what_postpone_refuses(yard: Yard) -> None:
    some = [uuid4()]
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    refused: list[dict[str, Any]] = [
        {},
        {"until": datetime.now(UTC), "delay": timedelta(1)},
        {"until": naive},
    ]
    for bad in refused:
        with pytest.raises(ConfigError):
            await yard.letters.postpone(some, **BECAUSE, **bad)
    with pytest.raises(ConfigError, match="event_ids"):
        await yard.letters.postpone([], delay=timedelta(1), **BECAUSE)


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


async def test_a_store_offers_its_own_upkeep(yard: Yard) -> None:
    await yard.add("dead")
    store = PostgresStore(yard.dsn)
    await store.open([NAME])
    try:
        assert await DeadLetters(store, TABLE).count() == 1
    finally:
        await store.close()


async def test_a_schema_that_is_missing_or_old_is_named(database: Database) -> None:
    with pytest.raises(SchemaMissing):
        async with PostgresUpkeep.connect(database.dsn, TABLE):
            pass
    connection = await asyncpg.connect(database.dsn)
    try:
        await schema.upgrade(connection, TABLE, to=2)
    finally:
        await connection.close()
    with pytest.raises(SchemaTooOld, match=r"schema\.upgrade"):
        async with PostgresUpkeep.connect(database.dsn, TABLE):
            pass
