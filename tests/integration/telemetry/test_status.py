"""One look at a table: what it finds in each state, where it stops counting, and who may look."""

from __future__ import annotations

from uuid import uuid4

import pytest

from outbox_core.errors import PermissionDenied, SchemaMissing, StorageUnavailable
from outbox_core.monitor import read_status
from outbox_core.status import Count, Leadership, Look, rates
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from outbox_core.stores.postgres.store import PostgresStore
from tests.integration.relay.bench import Bench
from tests.integration.yard import NAME, TABLE, TOPIC, Yard, role
from tests.kit.gates import ignore
from tests.kit.waiting import until

pytestmark = [pytest.mark.asyncio, pytest.mark.store]
DEEP = Look()


async def test_an_empty_table(yard: Yard) -> None:
    (status,) = await read_status(yard.dsn, TABLE)
    none = Count(0)
    assert (status.table, status.leader, status.oldest_pending_age) == (NAME, None, None)
    assert (status.pending, status.waiting, status.locked, status.dead) == (none, none, none, none)
    assert (status.away, status.away_topics, status.published_recently) == (none, (), none)


async def test_rows_in_every_state(yard: Yard) -> None:
    await yard.add("pending", 3, age=50.0)
    await yard.add("in_flight", 2)
    await yard.add("dead", 4)
    await yard.add("published", 5, age=1.0)
    await yard.add("published", 6, age=1000.0)
    status = await yard.admin_store.status(NAME, DEEP)
    assert (status.pending, status.waiting, status.locked, status.dead) == (
        Count(5),
        Count(0),
        Count(2),
        Count(4),
    )
    assert status.published_recently == Count(5)


async def test_messages_not_due_are_pending_and_have_no_age_unless_they_were_tried(yard: Yard) -> None:
    (delayed,) = await yard.add("pending", age=500.0)
    await yard.connection.execute(f"UPDATE {TABLE} SET available_at = now() + interval '1 hour'")  # noqa: S608
    status = await yard.admin_store.status(NAME, DEEP)
    assert (status.pending, status.waiting, status.oldest_pending_age) == (Count(1), Count(1), None)
    await yard.connection.execute(
        f"UPDATE {TABLE} SET last_error = 'TX.TIMEOUT' WHERE event_id = $1",  # noqa: S608 - a constant
        delayed,
    )
    tried = await yard.admin_store.status(NAME, DEEP)
    assert tried.oldest_pending_age == pytest.approx(500, abs=60)


async def test_a_message_never_tried_is_as_old_as_it_is_due(yard: Yard) -> None:
    await yard.add("pending", age=5000.0)
    await yard.connection.execute(f"UPDATE {TABLE} SET available_at = now() - interval '7 s'")  # noqa: S608
    status = await yard.admin_store.status(NAME, DEEP)
    assert status.oldest_pending_age == pytest.approx(7, abs=5)


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "4713-01-01 BC", "294000-01-01"])
async def test_times_edited_by_hand_do_not_break_the_look(yard: Yard, moment: str) -> None:
    await yard.add("pending", 2)
    await yard.connection.execute(
        f"UPDATE {TABLE} SET created_at = $1::text::timestamptz, available_at = $1::text::timestamptz,"  # noqa: S608
        " last_error = 'TX.TIMEOUT'",
        moment,
    )
    status = await yard.admin_store.status(NAME, DEEP)
    assert status.pending == Count(2)
    assert status.oldest_pending_age is not None
    assert status.oldest_pending_age >= 0


async def test_counts_stop_at_the_limit_and_say_so(yard: Yard) -> None:
    await yard.add("pending", 12)
    await yard.add("in_flight", 3)
    await yard.add("dead", 11)
    status = await yard.admin_store.status(NAME, Look(limit=10, depth=5))
    assert (status.pending, status.dead) == (Count(10, exact=False), Count(10, exact=False))
    assert not status.locked.exact
    assert str(status.dead) == "at least 10"
    exact = await yard.admin_store.status(NAME, Look(limit=15, depth=15))
    assert (exact.pending, exact.locked, exact.dead) == (Count(15), Count(3), Count(11))


@pytest.mark.parametrize("code", ["PROVIDER.UNAVAILABLE", "PROVIDER.REFUSED"])
async def test_messages_put_off_by_an_outage_are_a_hint_at_an_open_breaker(yard: Yard, code: str) -> None:
    await yard.add("pending", 3)
    await yard.add("pending", topic="shop.other.v1")
    await yard.connection.execute(
        f"UPDATE {TABLE} SET last_error = $1 || ' no answer' WHERE topic = $2",  # noqa: S608 - a constant
        code,
        TOPIC,
    )
    status = await yard.admin_store.status(NAME, DEEP)
    assert (status.away, status.away_topics) == (Count(3), (TOPIC,))
    await yard.connection.execute(f"UPDATE {TABLE} SET last_error = 'PROVIDER.UNAVAILABLES not ours'")  # noqa: S608
    assert (await yard.admin_store.status(NAME, DEEP)).away == Count(0)


async def test_the_leader(yard: Yard) -> None:
    await yard.connection.execute(
        "UPDATE shop.outbox_leader SET holder = 'host:1:x', term = 7, heartbeat_at = now() - interval '3 s'"
    )
    leader = (await yard.admin_store.status(NAME, DEEP)).leader
    assert isinstance(leader, Leadership)
    assert (leader.term, leader.holder) == (7, "host:1:x")
    assert leader.heartbeat_age == pytest.approx(3, abs=2)


@pytest.mark.parametrize("part", ["viewer", "operator", "relay"])
async def test_every_role_that_reads_may_look_and_sees_rates(yard: Yard, part: str, unique_name: str) -> None:
    async with role(yard, part, unique_name) as admin_store:
        earlier = await admin_store.status(NAME, DEEP)
        await yard.add("pending", 5)
        # The statistics that some roles see instead of the sequence are a little late.
        await until(lambda: written(yard, admin_store, earlier.written + 5))
        later = await admin_store.status(NAME, DEEP)
        assert later.pending == Count(5)
        assert rates(earlier, later).written > 0


async def written(yard: Yard, admin_store: PostgresAdminStore, least: int) -> bool:
    await yard.connection.execute(
        "SELECT 1"
    )  # PostgreSQL 14 tells what a session did when it does something more
    return (await admin_store.status(NAME, DEEP)).written >= least


async def test_who_may_not_read_may_not_look(yard: Yard, unique_name: str) -> None:
    async with role(yard, "relay", unique_name) as admin_store:
        await yard.connection.execute(f"REVOKE SELECT ON {TABLE} FROM {unique_name}")  # noqa: S608
        with pytest.raises(PermissionDenied):
            await admin_store.status(NAME, DEEP)


async def test_several_tables_on_a_store_that_is_open(yard: Yard) -> None:
    store = PostgresStore(yard.dsn)
    try:
        await store.open([NAME])
        await yard.add("pending", 2)
        assert [status.pending for status in await read_status(store, TABLE, NAME)] == [Count(2), Count(2)]
    finally:
        await store.close()


async def test_what_cannot_be_looked_at(yard: Yard) -> None:
    with pytest.raises(SchemaMissing):
        await read_status(yard.dsn, "shop.not_there")
    with pytest.raises(StorageUnavailable, match="cannot connect"):
        await read_status("postgresql://nobody@127.0.0.1:1/none", TABLE, timeout=2.0)


async def test_a_look_waits_for_nobody_and_holds_nobody_up(yard: Yard) -> None:
    (event_id,) = await yard.add("pending")
    async with yard.connection.transaction():
        await yard.connection.execute(
            f"UPDATE {TABLE} SET locked_at = now(), lock_token = $2 WHERE event_id = $1",  # noqa: S608
            event_id,
            uuid4(),
        )
        status = await yard.admin_store.status(NAME, DEEP)
        assert (status.pending, status.locked) == (Count(1), Count(0))


async def test_what_a_relay_finds_of_itself(bench: Bench) -> None:
    async with bench.relay(ignore):
        await bench.enqueue(*range(20))
        await bench.settled()
        (status,) = await read_status(bench.dsn, TABLE)
        assert status.leader is not None
        assert status.leader.term >= 1
        assert (status.pending, status.published_recently) == (Count(0), Count(20))
