"""Replay and discard: what they change, what they leave alone, and what is put on record."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import uuid4

import pytest

from outbox_core.dead_letters import Action, DeadLetters, Filter, Plan
from outbox_core.errors import ConfigError, PlanMismatch
from outbox_core.observer import Discarded, Event, Replayed
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from tests.integration.yard import ALL, BECAUSE, TABLE, Yard, replays
from tests.kit.waiting import until
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

RESET = {"dead_at", "attempts", "last_error", "replays", "available_at"}


async def test_a_replayed_message_is_as_new_and_still_the_same(yard: Yard) -> None:
    first, other = await yard.add("dead", 2, key="k")
    before = await yard.rows()
    outcome = await yard.letters.replay(await yard.letters.plan(Filter(event_ids=[first])), **BECAUSE)
    assert (outcome.changed, outcome.changed_now, outcome.skipped) == (1, 1, 0)
    rows = await yard.rows()
    row = rows[first]
    assert {name for name in dict(row) if row[name] != before[first][name]} == RESET
    assert (row["dead_at"], row["attempts"], row["last_error"], row["replays"]) == (None, 0, None, 1)
    assert datetime.now(UTC) - row["available_at"] < timedelta(seconds=30)
    assert rows[other] == before[other]


async def test_the_audit_says_who_when_why_which_and_how_many(yard: Yard) -> None:
    tenant = uuid4()
    await yard.add("dead", 4, tenant=tenant)
    since = datetime.now(UTC) - timedelta(days=1)
    plan = await yard.letters.plan(Filter(topic="shop.**", tenant_id=tenant, since=since, code="TX.TIMEOUT"))
    outcome = await yard.letters.replay(plan, rate=1000, **BECAUSE)
    (record,) = await yard.letters.history()
    assert outcome.record == record
    assert (record.id, record.action, record.actor, record.reason) == (
        plan.id, Action.REPLAY, "ada", "the consumer is mended",
    )  # fmt: skip
    assert record.selection == plan.filter
    assert (record.as_of, record.planned, record.changed, record.rate) == (plan.as_of, 4, 4, 1000)
    assert record.finished_at is not None
    assert record.started_at <= record.finished_at
    assert await yard.letters.history(unfinished=True) == []
    event = yard.heard[0]
    assert isinstance(event, Replayed)
    assert (event.rows, event.actor, event.audit_id) == (4, "ada", plan.id)


async def test_a_rate_spreads_messages_over_time(yard: Yard) -> None:
    await yard.add("dead", 1200)
    seen: list[int] = []
    plan = await yard.letters.plan(ALL)
    await yard.letters.replay(plan, rate=10, progress=lambda record: seen.append(record.changed), **BECAUSE)
    assert seen == [500, 1000, 1200]
    moments = sorted(row["available_at"] for row in (await yard.rows()).values())
    assert {(after - before) for before, after in pairwise(moments)} == {timedelta(seconds=0.1)}
    for bad in (0, -1.0, 1e-9, 1e-300, 1_000_001, math.inf, math.nan):
        with pytest.raises(ConfigError, match="rate"):
            await yard.letters.replay(plan, rate=bad, **BECAUSE)


async def test_what_moved_on_is_left_alone_and_counted(yard: Yard) -> None:
    cleaned, replayed, lived_again, stays = await yard.add("dead", 4)
    plan = await yard.letters.plan(ALL)
    await yard.connection.execute("DELETE FROM shop.orders_outbox WHERE event_id = $1", cleaned)
    await yard.letters.replay(await yard.letters.plan(Filter(event_ids=[replayed, lived_again])), **BECAUSE)
    await yard.connection.execute(
        "UPDATE shop.orders_outbox SET dead_at = now(), attempts = 25 WHERE event_id = $1", lived_again
    )
    later = await yard.add("dead", age=0)
    before = await yard.rows()
    outcome = await yard.letters.replay(plan, **BECAUSE)
    assert (outcome.changed, outcome.skipped) == (1, 3)
    rows = await yard.rows()
    assert rows[stays]["dead_at"] is None
    for untouched in (replayed, lived_again, *later):
        assert rows[untouched] == before[untouched]


async def test_the_same_plan_again_does_nothing(yard: Yard) -> None:
    (event_id,) = await yard.add("dead")
    plan = await yard.letters.plan(ALL)
    await yard.letters.replay(plan, **BECAUSE)
    await yard.connection.execute("UPDATE shop.orders_outbox SET dead_at = now()")
    before = await yard.rows()
    outcome = await yard.letters.replay(plan, **BECAUSE)
    assert (outcome.changed, outcome.changed_now) == (1, 0)
    assert await yard.rows() == before
    assert before[event_id]["replays"] == 1
    assert len(await yard.letters.history()) == 1


async def test_a_plan_is_data(yard: Yard) -> None:
    await yard.add("dead", 2)
    plan: Plan = pickle.loads(pickle.dumps(await yard.letters.plan(ALL)))  # noqa: S301 - made here
    async with PostgresAdminStore.connect(yard.dsn, TABLE) as elsewhere:
        assert (await DeadLetters(elsewhere, TABLE).replay(plan, **BECAUSE)).changed == 2


async def test_discarding(yard: Yard) -> None:
    gone = await yard.add("dead", 2)
    kept = await yard.add("dead", topic="shop.order.paid.v1")
    kept += [*await yard.add("published"), *await yard.add("pending")]
    plan = await yard.letters.plan(ALL)
    outcome = await yard.letters.discard(plan, **BECAUSE)
    assert (outcome.changed, outcome.record.action) == (2, Action.DISCARD)
    assert set(await yard.rows()) == set(kept)
    assert not set(gone) & set(kept)
    event = yard.heard[0]
    assert isinstance(event, Discarded)
    assert (event.rows, event.audit_id) == (2, plan.id)


async def test_a_plan_is_for_one_table_and_one_action(yard: Yard) -> None:
    await yard.add("dead", 2)
    plan = await yard.letters.plan(ALL)
    with pytest.raises(PlanMismatch, match=r"shop\.orders_outbox"):
        await DeadLetters(yard.admin_store, "shop.other_outbox").replay(plan, **BECAUSE)
    await yard.letters.replay(plan, **BECAUSE)
    before = await yard.rows()
    with pytest.raises(PlanMismatch, match="begun as a replay"):
        await yard.letters.discard(plan, **BECAUSE)
    assert await yard.rows() == before


async def test_published_messages_only_when_said_so(yard: Yard) -> None:
    published = await yard.add("published", 3)
    await yard.add("pending")
    assert (await yard.letters.plan(ALL)).total == 0
    plan = await yard.letters.plan(Filter(event_ids=published[:2]), published=True)
    assert (plan.total, "published message(s)" in str(plan)) == (2, True)
    with pytest.raises(PlanMismatch, match="not discarded"):
        await yard.letters.discard(plan, **BECAUSE)
    assert (await yard.letters.replay(plan, **BECAUSE)).changed == 2
    rows = await yard.rows()
    assert [rows[each]["published_at"] is None for each in published] == [True, True, False]
    assert [rows[each]["replays"] for each in published] == [1, 1, 0]
    whole = await yard.letters.plan(Filter(everything=True), published=True)
    assert (await yard.letters.replay(whole, **BECAUSE)).changed == 1


async def test_published_messages_in_many_batches(yard: Yard) -> None:
    await yard.add("published", 1200)
    plan = await yard.letters.plan(ALL, published=True)
    outcome = await yard.letters.replay(plan, **BECAUSE)
    assert (outcome.changed, outcome.record.batches) == (1200, 3)
    assert await replays(yard) == {1: 1200}


@pytest.mark.parametrize("error", [ValueError(), GeneratorExit()])
async def test_an_observer_that_fails_does_not_break_it(
    yard: Yard, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise error

    await yard.add("dead")
    letters = DeadLetters(yard.admin_store, TABLE, observers=[broken, yard.heard.append])
    assert (await letters.replay(await letters.plan(ALL), **BECAUSE)).changed == 1
    assert [type(event) for event in yard.heard] == [Replayed]
    assert f"the observer {broken.__qualname__} failed on Replayed" in caplog.text


async def test_behind_a_transaction_pooler(yard: Yard, database: Database, pgbouncer: PgBouncer) -> None:
    await yard.add("dead", 700)
    async with PostgresAdminStore.connect(pgbouncer.dsn(database.name), TABLE) as admin_store:
        letters = DeadLetters(admin_store, TABLE)
        assert (await letters.replay(await letters.plan(ALL), **BECAUSE)).changed == 700


async def test_a_look_up_by_id_does_not_search_the_table(yard: Yard) -> None:
    """Published rows may be many millions; one of them by its id must not mean reading them all."""
    (wanted,) = await yard.add("published")
    await yard.add("published", 20_000)
    await yard.connection.execute("VACUUM ANALYZE shop.orders_outbox")
    scanned = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'orders_outbox_cleaner'"
    plan = await yard.letters.plan(Filter(event_ids=[wanted]), published=True)
    assert (await yard.letters.replay(plan, **BECAUSE)).changed == 1
    await yard.admin_store._sessions.close()  # a session reports its figures when it ends

    async def reported() -> bool:
        row = await yard.connection.fetchrow(
            "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'orders_outbox'"
        )
        return row is not None and row["n_tup_upd"] >= 1

    await until(reported)
    assert await yard.connection.fetchval(scanned) < 1000
