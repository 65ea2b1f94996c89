"""Replay and discard: each message once for a plan, whoever else is at it, and whatever happens half-way."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from outbox_core.cleaner import Cleaner, CleanerSettings
from outbox_core.dead_letters import Action, AuditRecord, DeadLetters, Filter, Outcome, Plan
from outbox_core.errors import ConfigError, PermanentError, PlanMismatch, StorageTimeout, StorageUnavailable
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Discarded, Replayed
from outbox_core.relay import Relay
from outbox_core.stores.postgres.upkeep import PostgresUpkeep
from outbox_core.table import TableName
from tests.integration.relay.bench import QUICK, until
from tests.integration.yard import BECAUSE, TABLE, TOPIC, Yard, opened
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

ALL = Filter(topic=TOPIC)
ROOT = Path(__file__).parents[2]
RESET = {"dead_at", "attempts", "last_error", "replays", "available_at"}


@pytest_asyncio.fixture
async def yard(database: Database) -> AsyncIterator[Yard]:
    async with opened(database) as yard:
        yield yard


class Flaky(PostgresUpkeep):
    """An upkeep whose answers get lost: every other batch is done, and then there is no saying so."""

    calls = 0
    always = False

    async def advance(self, table: TableName, record: AuditRecord) -> AuditRecord | None:
        self.calls += 1
        if self.always:
            raise StorageUnavailable("the database is away")
        advanced = await super().advance(table, record)
        if self.calls % 2:
            raise StorageTimeout("no answer")
        return advanced


def flaky(yard: Yard) -> Flaky:
    return Flaky(yard.upkeep._sessions)


async def replays(yard: Yard) -> dict[int, int]:
    return dict(Counter(row["replays"] for row in (await yard.rows()).values()))


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


async def test_it_is_delivered_once_more_and_says_so(yard: Yard) -> None:
    await yard.add("dead", 3)
    await yard.add("published", 2)
    delivered: list[tuple[UUID, int, int]] = []

    async def dispatch(message: DispatchedMessage) -> None:
        delivered.append((message.meta.event_id, message.meta.replays, message.meta.attempts))

    async with Relay(yard.dsn, table=TABLE, dispatcher=dispatch, **QUICK | {"poll_interval": 30}):
        await yard.letters.replay(await yard.letters.plan(ALL), **BECAUSE)
        # Long before the next poll: a replay wakes the relay.
        await until(lambda: len(delivered) == 3, timeout=10)
    assert {(replay, attempt) for _, replay, attempt in delivered} == {(1, 1)}
    assert await yard.states() == {"published": 5}


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
    for bad in (0, -1.0):
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
    async with PostgresUpkeep.connect(yard.dsn, TABLE) as elsewhere:
        assert (await DeadLetters(elsewhere, TABLE).replay(plan, **BECAUSE)).changed == 2


async def test_two_at_the_same_plan_share_it(yard: Yard) -> None:
    await yard.add("dead", 2300)
    plan = await yard.letters.plan(ALL)
    outcomes = await asyncio.gather(*(yard.letters.replay(plan, **BECAUSE) for _ in range(3)))
    assert {outcome.changed for outcome in outcomes} == {2300}
    assert await replays(yard) == {1: 2300}
    (record,) = await yard.letters.history()
    assert (record.changed, record.batches) == (2300, 5)


async def test_two_plans_for_the_same_messages(yard: Yard) -> None:
    await yard.add("dead", 2300)
    plans = [await yard.letters.plan(ALL) for _ in range(3)]
    outcomes = await asyncio.gather(*(yard.letters.replay(plan, **BECAUSE) for plan in plans))
    assert await replays(yard) == {1: 2300}
    assert sum(outcome.changed for outcome in outcomes) == 2300
    assert sum(outcome.skipped for outcome in outcomes) == 2 * 2300


async def test_everybody_at_once_and_each_message_has_one_fate(yard: Yard) -> None:
    await yard.add("dead", 4000)
    plans = [await yard.letters.plan(ALL) for _ in range(4)]
    cleaner = Cleaner(yard.upkeep, TABLE, CleanerSettings(dead_retention=60, batch=40))
    cleaning = asyncio.create_task(cleaner.clean())
    calls = [
        yard.letters.replay(plans[0], **BECAUSE),
        yard.letters.discard(plans[1], **BECAUSE),
        yard.letters.replay(plans[2], **BECAUSE),
        yard.letters.discard(plans[3], **BECAUSE),
    ]
    outcomes: list[Outcome] = await asyncio.gather(*calls)
    cleaned = (await cleaning).dead
    replayed = outcomes[0].changed + outcomes[2].changed
    discarded = outcomes[1].changed + outcomes[3].changed
    assert await yard.states() == {"pending": replayed}
    assert replayed + discarded + cleaned == 4000


@pytest.mark.parametrize("action", ["replay", "discard"])
async def test_a_message_that_moves_on_while_it_is_waited_for(
    yard: Yard, database: Database, action: str
) -> None:
    first, second = await yard.add("dead", 2)
    plan = await yard.letters.plan(ALL)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    watcher = await asyncpg.connect(database.dsn)

    async def somebody_waits() -> bool:
        return bool(await watcher.fetchval(waiting))

    try:
        async with yard.connection.transaction():
            await yard.connection.execute(
                "UPDATE shop.orders_outbox SET dead_at = NULL, replays = replays + 1 WHERE event_id = $1",
                first,
            )
            call = yard.letters.replay if action == "replay" else yard.letters.discard
            running = asyncio.create_task(call(plan, **BECAUSE))
            await until(somebody_waits)
        outcome = await running
    finally:
        await watcher.close()
    assert (outcome.changed, outcome.skipped) == (1, 1)
    rows = await yard.rows()
    assert rows[first]["replays"] == 1
    assert (second in rows) is (action == "replay")


async def test_a_replay_goes_on_after_lost_answers(yard: Yard) -> None:
    await yard.add("dead", 1700)
    plan = await yard.letters.plan(ALL)
    upkeep = flaky(yard)
    outcome = await DeadLetters(upkeep, TABLE).replay(plan, **BECAUSE)
    assert outcome.changed == 1700
    assert await replays(yard) == {1: 1700}
    assert upkeep.calls > outcome.record.batches


async def test_a_database_that_stays_away_ends_the_call_and_not_the_plan(yard: Yard) -> None:
    await yard.add("dead", 3)
    plan = await yard.letters.plan(ALL)
    upkeep = flaky(yard)
    upkeep.always = True
    with pytest.raises(StorageUnavailable):
        await DeadLetters(upkeep, TABLE).replay(plan, **BECAUSE)
    (record,) = await yard.letters.history(unfinished=True)
    assert (record.id, record.changed, record.skipped) == (plan.id, 0, 0)
    assert (await yard.letters.resume(plan.id)).changed == 3


@pytest.mark.parametrize("action", ["replay", "discard"])
async def test_a_killed_process_is_taken_over(yard: Yard, action: str) -> None:
    await yard.add("dead", 1700)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(f"""
            import asyncio, os, signal, sys
            from outbox_core.dead_letters import DeadLetters, Filter
            from outbox_core.stores.postgres.upkeep import PostgresUpkeep

            def die(record):
                if record.batches == 2:
                    os.kill(os.getpid(), signal.SIGKILL)

            async def main():
                async with PostgresUpkeep.connect(sys.argv[1]) as store:
                    letters = DeadLetters(store, "{TABLE}")
                    plan = await letters.plan(Filter(everything=True))
                    await letters.{action}(plan, actor="child", reason="first try", progress=die)

            asyncio.run(main())
        """),
        yard.dsn,
        cwd=ROOT,
    )
    assert await asyncio.wait_for(child.wait(), 30) == -signal.SIGKILL
    (record,) = await yard.letters.history(unfinished=True)
    assert (record.changed, record.actor, record.action.value) == (1000, "child", action)
    outcome = await yard.letters.resume(record.id)
    assert (outcome.changed, outcome.changed_now, outcome.skipped) == (1700, 700, 0)
    assert await yard.states() == ({"pending": 1700} if action == "replay" else {})
    assert await replays(yard) == ({1: 1700} if action == "replay" else {})
    assert await yard.letters.history(unfinished=True) == []


async def test_a_cancelled_call_goes_on_with_the_same_plan_and_pace(yard: Yard) -> None:
    await yard.add("dead", 1200)
    plan = await yard.letters.plan(ALL)
    task: asyncio.Task[Outcome] | None = None

    def cancel(record: AuditRecord) -> None:
        assert task is not None
        task.cancel()

    task = asyncio.create_task(yard.letters.replay(plan, rate=100, progress=cancel, **BECAUSE))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await yard.states())["pending"] == 500
    outcome = await yard.letters.replay(plan, actor="grace", reason="again")
    assert (outcome.changed, outcome.changed_now, outcome.record.actor) == (1200, 700, "ada")
    moments = sorted(row["available_at"] for row in (await yard.rows()).values())
    assert moments[-1] - moments[0] == timedelta(seconds=11.99)
    assert [event.rows for event in yard.heard if isinstance(event, Replayed)] == [500, 700]


async def test_resuming_what_is_not_there(yard: Yard) -> None:
    with pytest.raises(PlanMismatch, match="no record"):
        await yard.letters.resume(uuid4())


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
        await DeadLetters(yard.upkeep, "shop.other_outbox").replay(plan, **BECAUSE)
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


async def test_a_replayed_message_does_not_hold_its_key(yard: Yard) -> None:
    (head,) = await yard.add("dead", key="k")
    (behind,) = await yard.add("pending", key="k")
    plan = await yard.letters.plan(ALL)
    await yard.letters.replay(plan, rate=1 / 3600, **BECAUSE)
    await yard.letters.postpone([head], delay=timedelta(hours=1), **BECAUSE)
    delivered: list[UUID] = []

    async def dispatch(message: DispatchedMessage) -> None:
        delivered.append(message.meta.event_id)

    async with Relay(yard.dsn, table=TABLE, dispatcher=dispatch, on_dead="block", **QUICK):
        await until(lambda: delivered == [behind])


@pytest.mark.parametrize("max_attempts", [1, 100])
async def test_another_max_attempts_neither_revives_nor_hides_dead_messages(
    yard: Yard, max_attempts: int
) -> None:
    dead = await yard.add("dead", 3)
    (fresh,) = await yard.add("pending")
    before = await yard.rows()
    delivered: list[UUID] = []

    async def dispatch(message: DispatchedMessage) -> None:
        delivered.append(message.meta.event_id)

    settings: dict[str, Any] = QUICK | {"max_attempts": max_attempts}
    async with Relay(yard.dsn, table=TABLE, dispatcher=dispatch, **settings):
        await until(lambda: fresh in delivered)
    assert delivered == [fresh]
    rows = await yard.rows()
    assert all(rows[each] == before[each] for each in dead)
    assert await yard.letters.count() == 3
    await yard.letters.replay(await yard.letters.plan(ALL), **BECAUSE)
    async with Relay(yard.dsn, table=TABLE, dispatcher=dispatch, **settings):
        await until(lambda: set(delivered) == {fresh, *dead})


async def test_what_dies_again_can_be_replayed_again(yard: Yard) -> None:
    await yard.add("dead", 2)

    async def refuse(message: DispatchedMessage) -> None:
        raise PermanentError("no")

    async def all_dead() -> bool:
        return await yard.states() == {"dead": 2}

    for time in (1, 2):
        outcome = await yard.letters.replay(await yard.letters.plan(ALL), **BECAUSE)
        assert outcome.changed == 2
        assert await replays(yard) == {time: 2}
        async with Relay(yard.dsn, table=TABLE, dispatcher=refuse, **QUICK):
            await until(all_dead)
    assert [group.value for group in await yard.letters.group("code")] == ["PROVIDER.PERMANENT"]


async def test_behind_a_transaction_pooler(yard: Yard, database: Database, pgbouncer: PgBouncer) -> None:
    await yard.add("dead", 700)
    async with PostgresUpkeep.connect(pgbouncer.dsn(database.name), TABLE) as upkeep:
        letters = DeadLetters(upkeep, TABLE)
        assert (await letters.replay(await letters.plan(ALL), **BECAUSE)).changed == 700


async def test_a_look_up_by_id_does_not_search_the_table(yard: Yard) -> None:
    """Published rows may be many millions; one of them by its id must not mean reading them all."""
    (wanted,) = await yard.add("published")
    await yard.add("published", 20_000)
    await yard.connection.execute("VACUUM ANALYZE shop.orders_outbox")
    scanned = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'orders_outbox_cleaner'"
    plan = await yard.letters.plan(Filter(event_ids=[wanted]), published=True)
    assert (await yard.letters.replay(plan, **BECAUSE)).changed == 1
    await yard.upkeep._sessions.close()  # a session reports its figures when it ends

    async def reported() -> bool:
        row = await yard.connection.fetchrow(
            "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'orders_outbox'"
        )
        return row is not None and row["n_tup_upd"] >= 1

    await until(reported)
    assert await yard.connection.fetchval(scanned) < 1000
