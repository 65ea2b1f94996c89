"""Dead letters: seen without their content, counted and grouped, by whoever may."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from outbox_core import State, schema
from outbox_core.dead_letters import DeadLetters, Filter, LetterPlace, Page
from outbox_core.errors import (
    ConfigError,
    PermissionDenied,
    SchemaMissing,
    SchemaTooOld,
)
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from outbox_core.stores.postgres.store import PostgresStore
from tests.integration.yard import BECAUSE, NAME, NIL, OTHER, TABLE, Yard, mixed, role
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]


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
    async with role(yard, "viewer", unique_name) as admin_store:
        letters = DeadLetters(admin_store, TABLE)
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
    async with role(yard, "operator", unique_name) as admin_store:
        letters = DeadLetters(admin_store, TABLE)
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


async def test_a_store_offers_its_own_admin_store(yard: Yard) -> None:
    await yard.add("dead")
    store = PostgresStore(yard.relays)
    await store.open([NAME])
    try:
        assert await DeadLetters(store, TABLE).count() == 1
    finally:
        await store.close()


async def test_a_schema_that_is_missing_or_old_is_named(database: Database) -> None:
    with pytest.raises(SchemaMissing):
        async with PostgresAdminStore.connect(database.dsn, TABLE):
            pass
    connection = await asyncpg.connect(database.dsn)
    try:
        await schema.upgrade(connection, TABLE, to=2)
    finally:
        await connection.close()
    with pytest.raises(SchemaTooOld, match=r"schema\.upgrade"):
        async with PostgresAdminStore.connect(database.dsn, TABLE):
            pass
