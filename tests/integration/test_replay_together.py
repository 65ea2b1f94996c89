"""Replay and discard by many at once: each message has one fate, and once for a plan."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from outbox_core.cleaner import Cleaner, CleanerSettings
from outbox_core.dead_letters import Outcome
from tests.integration.yard import ALL, BECAUSE, TABLE, Yard, replays
from tests.kit.waiting import until
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]


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
    cleaner = Cleaner(yard.admin_store, TABLE, CleanerSettings(dead_retention=60, batch=40))
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
