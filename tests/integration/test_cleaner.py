"""The cleaner deletes what is old enough and nothing else, in small steps, one at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf
from typing import Any

import asyncpg
import pytest

from outbox_core.admin_store import CleanedBatch, CleaningBatch
from outbox_core.cleaner import Cleaner, CleanerSettings, Pass
from outbox_core.dead_letters import Filter
from outbox_core.errors import ConfigError, RetentionZero, StorageUnavailable
from outbox_core.observer import Cleaned, Event, Reconnecting
from outbox_core.store import BEGINNING
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from outbox_core.stores.postgres.advisory import lock_key
from outbox_core.table import TableName
from tests.integration.yard import BECAUSE, TABLE, Yard, role
from tests.kit.waiting import until
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

MINUTE = CleanerSettings(retention=60)
BOTH = CleanerSettings(retention=60, dead_retention=60)


@dataclass
class Watched:
    """A store that remembers what it was asked, and fails when told to."""

    store: PostgresAdminStore
    failures: int = 0
    batches: list[CleaningBatch] = field(default_factory=list[CleaningBatch])

    async def clean_published(self, table: TableName, batch: CleaningBatch) -> CleanedBatch:
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("the database is away")
        self.batches.append(batch)
        return await self.store.clean_published(table, batch)

    async def clean_dead(self, table: TableName, batch: CleaningBatch) -> CleanedBatch:
        return await self.store.clean_dead(table, batch)


async def test_only_what_was_published_long_enough_ago(yard: Yard) -> None:
    await yard.add("published", 5, age=61)
    await yard.add("published", 4, age=59, earlier=1000)
    await yard.add("dead", 3, age=10_000)
    await yard.add("pending", 2, age=10_000)
    await yard.add("in_flight", 1, age=10_000)
    assert await Cleaner(yard.admin_store, TABLE, MINUTE).clean() == Pass(published=5)
    assert await yard.states() == {"published": 4, "dead": 3, "pending": 2, "in_flight": 1}


async def test_seven_days_and_no_dead_message_by_default(yard: Yard) -> None:
    day = 86400.0
    await yard.add("published", age=7 * day - 60)
    await yard.add("published", age=7 * day + 60)
    await yard.add("dead", age=1000 * day)
    assert await Cleaner(yard.admin_store, TABLE).clean() == Pass(published=1)
    assert await yard.states() == {"published": 1, "dead": 1}


async def test_dead_messages_by_when_they_died(yard: Yard) -> None:
    await yard.add("dead", 3, age=61)
    await yard.add("dead", 2, age=59, earlier=10_000)
    assert await Cleaner(yard.admin_store, TABLE, BOTH).clean() == Pass(dead=3)
    assert await yard.states() == {"dead": 2}


async def test_a_dead_message_that_blocks_a_key_stays(yard: Yard) -> None:
    await yard.add("dead", 3, key="blocked")
    await yard.add("pending", key="blocked")
    await yard.add("dead", key="in-flight-behind")
    await yard.add("in_flight", key="in-flight-behind")
    await yard.add("pending", key="free")
    await yard.add("dead", 2, key="free")
    await yard.add("dead", 2, key="all-dead")
    await yard.add("dead", 2)
    cleaner = Cleaner(yard.admin_store, TABLE, BOTH)
    assert await cleaner.clean() == Pass(dead=6)
    kept = [row["key"] for row in (await yard.rows()).values() if row["dead_at"] is not None]
    assert kept == ["blocked"] * 3 + ["in-flight-behind"]
    await yard.connection.execute(
        "UPDATE shop.orders_outbox SET published_at = now(), locked_at = NULL, lock_token = NULL WHERE dead_at IS NULL"
    )
    assert await cleaner.clean() == Pass(dead=4)


async def test_another_tenants_message_of_the_same_key_is_not_blocked(yard: Yard) -> None:
    await yard.add("dead", key="k")
    await yard.connection.execute("UPDATE shop.orders_outbox SET tenant_id = gen_random_uuid()")
    await yard.add("pending", key="k")
    assert (await Cleaner(yard.admin_store, TABLE, BOTH).clean()).dead == 1


async def test_a_replay_in_progress_wins(yard: Yard) -> None:
    published = await yard.add("published", 3)
    dead = await yard.add("dead", 3)
    async with yard.connection.transaction():
        await yard.connection.execute(
            """
            UPDATE shop.orders_outbox
            SET published_at = NULL, dead_at = NULL, attempts = 0, last_error = NULL, replays = replays + 1
            WHERE event_id = ANY ($1)
            """,
            [published[1], dead[1]],
        )
        # Within a bound: the cleaner waits for nobody.
        done = await asyncio.wait_for(Cleaner(yard.admin_store, TABLE, BOTH).clean(), 5)
    assert done == Pass(published=2, dead=2)
    assert set(await yard.rows()) == {published[1], dead[1]}


async def test_a_replay_that_commits_while_the_cleaner_is_at_work_wins(
    yard: Yard, database: Database
) -> None:
    published = await yard.add("published", 3)
    dead = await yard.add("dead", 3)
    watcher = await asyncpg.connect(database.dsn)

    async def waits_or_is_done() -> bool:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'"
        return cleaning.done() or bool(await watcher.fetchval(waiting, database.name))

    try:
        async with yard.connection.transaction():
            await yard.connection.execute(
                "UPDATE shop.orders_outbox SET published_at = NULL, dead_at = NULL, replays = replays + 1"
                " WHERE event_id = ANY ($1)",
                [published[1], dead[1]],
            )
            cleaning = asyncio.create_task(Cleaner(yard.admin_store, TABLE, BOTH).clean())
            await until(waits_or_is_done)
        await cleaning
    finally:
        await watcher.close()
    assert set(await yard.rows()) == {published[1], dead[1]}


async def test_every_message_is_either_replayed_or_cleaned(yard: Yard) -> None:
    await yard.add("published", 3000)
    await yard.add("dead", 3000)
    plans = [
        await yard.letters.plan(Filter(everything=True), published=True),
        await yard.letters.plan(Filter(everything=True)),
    ]
    settings = CleanerSettings(retention=60, dead_retention=60, batch=50)
    cleaning = asyncio.create_task(Cleaner(yard.admin_store, TABLE, settings).clean())
    replays = await asyncio.gather(*(yard.letters.replay(plan, **BECAUSE) for plan in plans))
    cleaned = await cleaning
    rows = (await yard.rows()).values()
    replayed = sum(outcome.changed for outcome in replays)
    assert len(rows) == replayed
    assert {(row["replays"], row["dead_at"], row["published_at"]) for row in rows} == {(1, None, None)}
    assert replayed + cleaned.published + cleaned.dead == 6000
    assert 0 < replayed < 6000
    assert sum(outcome.skipped for outcome in replays) == 6000 - replayed


async def test_one_cleaner_at_a_time(yard: Yard) -> None:
    await yard.add("published", 10)
    async with yard.connection.transaction():
        await yard.connection.execute("SELECT pg_advisory_xact_lock($1)", lock_key(f"outbox-cleaner:{TABLE}"))
        assert await Cleaner(yard.admin_store, TABLE, BOTH).clean() == Pass(busy=True)
        assert await yard.states() == {"published": 10}
    assert await Cleaner(yard.admin_store, TABLE, BOTH).clean() == Pass(published=10)


async def test_many_cleaners_together_delete_everything_once(yard: Yard) -> None:
    await yard.add("published", 2000)
    settings = CleanerSettings(retention=60, batch=100)
    passes = await asyncio.gather(*(Cleaner(yard.admin_store, TABLE, settings).clean() for _ in range(4)))
    final = await Cleaner(yard.admin_store, TABLE, settings).clean()
    assert sum(each.published for each in passes) + final.published == 2000
    assert await yard.states() == {}


async def test_batches_are_bounded_and_progress_is_told(yard: Yard) -> None:
    await yard.add("published", 950)
    await yard.add("dead", 30)
    heard: list[Event] = []
    seen: list[Pass] = []
    settings = CleanerSettings(retention=60, dead_retention=60, batch=100)
    done = await Cleaner(yard.admin_store, TABLE, settings, observers=[heard.append]).clean(
        progress=seen.append
    )
    assert done == Pass(950, 30) == seen[-1]
    steps = [after.published - before.published for before, after in zip([Pass(), *seen], seen, strict=False)]
    assert max(steps) <= 100
    (event,) = heard
    assert isinstance(event, Cleaned)
    assert (event.published, event.dead, str(event.table)) == (950, 30, TABLE)
    assert event.seconds > 0


async def test_slow_deletes_make_batches_small(yard: Yard) -> None:
    await yard.add("published", 300)
    await yard.connection.execute("""
        CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(0.0005); RETURN OLD; END';
        CREATE TRIGGER slow BEFORE DELETE ON shop.orders_outbox FOR EACH ROW EXECUTE FUNCTION slow();
    """)
    store = Watched(yard.admin_store)
    settings = CleanerSettings(retention=60, batch_seconds=0.01)
    await Cleaner(store, TABLE, settings).clean()
    assert await yard.states() == {}
    assert store.batches[0].limit == 100
    assert store.batches[1].limit <= 20


async def test_deleted_entries_are_not_read_again(yard: Yard) -> None:
    store = Watched(yard.admin_store)
    cleaner = Cleaner(store, TABLE, CleanerSettings(retention=60, batch=100))
    await yard.add("published", 250)
    await cleaner.clean()
    places = [batch.since for batch in store.batches]
    assert places[0] == BEGINNING
    assert places == sorted(set(places))
    await yard.add("published", 5, age=70)
    assert (await cleaner.clean()).published == 5
    # Not beyond it if the last look of a pass found nothing, as when batches shrank on a slow machine.
    assert store.batches[len(places)].since >= places[-1] > BEGINNING


async def test_a_pass_that_failed_goes_on_from_where_it_was_with_smaller_batches(yard: Yard) -> None:
    await yard.add("published", 350)
    heard: list[Event] = []
    store = Watched(yard.admin_store)
    settings = CleanerSettings(retention=60, batch=100)
    cleaner = Cleaner(store, TABLE, settings, observers=[heard.append])

    def fail_next(done: Pass) -> None:
        store.failures = 1

    with pytest.raises(StorageUnavailable):
        await cleaner.clean(progress=fail_next)
    assert await cleaner.clean() == Pass(published=250)
    assert store.batches[1].since > store.batches[0].since
    assert store.batches[1].limit <= 25
    assert [event.published for event in heard if isinstance(event, Cleaned)] == [100, 250]


async def test_trouble_with_the_database_does_not_end_it(yard: Yard) -> None:
    await yard.add("published", 3)
    heard: list[Event] = []
    store = Watched(yard.admin_store, failures=2)
    settings = CleanerSettings(retention=60, interval=0.02)
    running = asyncio.create_task(Cleaner(store, TABLE, settings, observers=[heard.append]).run())
    try:
        await until(lambda: any(isinstance(event, Cleaned) for event in heard))
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert [type(event) for event in heard] == [Reconnecting, Reconnecting, Cleaned]
    assert await yard.states() == {}


async def test_a_disabled_cleaner_does_nothing(yard: Yard) -> None:
    await yard.add("published")
    await asyncio.wait_for(
        Cleaner(yard.admin_store, TABLE, CleanerSettings(retention=1, enabled=False)).run(), 5
    )
    assert await yard.states() == {"published": 1}


@pytest.mark.parametrize("error", [ValueError(), GeneratorExit()])
async def test_an_observer_that_fails_does_not_break_it(
    yard: Yard, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    await yard.add("published")

    def broken(event: Event) -> None:
        raise error

    assert (await Cleaner(yard.admin_store, TABLE, MINUTE, observers=[broken]).clean()).published == 1
    assert f"the observer {broken.__qualname__} failed on Cleaned" in caplog.text


async def test_the_relays_role_may_clean(yard: Yard, unique_name: str) -> None:
    await yard.add("published", 3)
    await yard.add("dead", 3, key="k")
    async with role(yard, "relay", unique_name) as admin_store:
        assert await Cleaner(admin_store, TABLE, BOTH).clean() == Pass(3, 3)


async def test_behind_a_transaction_pooler(yard: Yard, database: Database, pgbouncer: PgBouncer) -> None:
    await yard.add("published", 300)
    await yard.add("dead", 2)
    async with PostgresAdminStore.connect(pgbouncer.dsn(database.name), TABLE) as admin_store:
        assert await Cleaner(admin_store, TABLE, BOTH).clean() == Pass(300, 2)


@pytest.mark.parametrize("value", [0, 0.0, -1.0])
async def test_a_retention_of_nothing_is_refused(value: float) -> None:
    with pytest.raises(RetentionZero, match='on_published="delete"'):
        CleanerSettings(retention=value)
    with pytest.raises(RetentionZero, match="None"):
        CleanerSettings(dead_retention=value)


@pytest.mark.parametrize(
    "settings", [{"interval": 0}, {"batch": 0}, {"batch_seconds": -1}, {"retention": inf}, {"interval": inf}]
)
async def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        CleanerSettings(**settings)
