"""Behind a transaction pooler sessions hold no locks and hear no hints: the leader's row alone decides."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from tests.integration.relay.trial import Trial
from tests.kit.settings import QUICK_TAKEOVER
from tests.kit.waiting import quiet_for, until
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Database
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.asyncio

SLACK = 2.0


async def test_a_relay_behind_a_pooler_says_so_and_delivers(
    trial: Trial, database: Database, pgbouncer: PgBouncer
) -> None:
    await trial.enqueue(30)
    sequences = await trial.enqueue(10, key="k")
    async with trial.running(pgbouncer.dsn(database.name)):
        await trial.until_published(40)
        await trial.enqueue(3)
        assert await trial.until_published(43) < QUICK_TAKEOVER["poll_interval"] + 1.0
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        assert await trial.admin.fetchval(locks) == 0
    assert len(trial.journal.events("PoolerDetected")) == 1
    assert trial.journal.delivered(key="k") == sequences
    assert len(trial.journal.delivered()) == 43
    assert not trial.journal.events("Reconnecting")


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
async def test_a_stand_by_behind_a_pooler_takes_over(
    trial: Trial, database: Database, pgbouncer: PgBouncer, fault: signal.Signals
) -> None:
    dsn = pgbouncer.dsn(database.name)
    async with trial.child(dsn=dsn) as leader:
        await leader.until_leading()
        async with trial.running(dsn):
            await trial.enqueue(2)
            await trial.until_published(2)
            assert {line["pid"] for line in trial.journal.read("ack")} == {leader.pid}
            term = await trial.term()
            leader.send(fault)
            await trial.enqueue(2)
            await trial.until_published(
                4, (0 if fault is signal.SIGTERM else QUICK_TAKEOVER["takeover"]) + SLACK
            )
            assert await trial.term() == term + 1
            if fault is signal.SIGSTOP:
                leader.send(signal.SIGCONT)
                await leader.until_seen("event", name="LeaderLost")
                await trial.enqueue(1)
                await trial.until_published(5)
                assert await trial.term() == term + 1
    assert set(trial.journal.delivered()) >= {1, 2, 3, 4}


async def test_a_leader_cut_off_in_the_middle_of_a_claim_does_not_keep_its_row_locks(
    trial: Trial, database: Database, pgbouncer: PgBouncer
) -> None:
    """Its transaction is open, the pooler sees a client that is alive, and nobody else may end the pooler's session:
    the server itself must, or the stand-by waits for the leader's row as long as the network is gone."""
    dsn = pgbouncer.dsn(database.name)
    async with (
        FaultProxy.to_postgres(dsn) as proxy,
        trial.gate(closed=True) as gate,
        trial.child(dsn=proxy.dsn(dsn)) as leader,
    ):
        await leader.until_leading()
        await trial.enqueue(3)
        backend = await gate.until_waiting()
        proxy.hold()
        await gate.open()
        cut_off = time.monotonic()
        await trial.until_session(f"pid = {backend} AND state = 'idle in transaction'")
        async with trial.running(dsn):
            await trial.until_published(
                3, QUICK_TAKEOVER["takeover"] + 2 * QUICK_TAKEOVER["database_timeout"] + SLACK
            )
        assert (
            time.monotonic() - cut_off
            < QUICK_TAKEOVER["takeover"] + 2 * QUICK_TAKEOVER["database_timeout"] + SLACK
        )
        assert proxy.responses.held > 0
        assert not leader.seen("dispatch")
    assert sorted(trial.journal.delivered()) == [1, 2, 3]
    assert all(row["attempts"] == 1 for row in (await trial.rows()).values())


async def test_two_relays_behind_a_pooler_do_not_both_lead(
    trial: Trial, database: Database, pgbouncer: PgBouncer
) -> None:
    dsn = pgbouncer.dsn(database.name)
    async with trial.running(dsn), trial.running(dsn):
        for _ in range(5):
            await trial.enqueue(4)
            await quiet_for(0.2, lambda: len(trial.journal.events("LeaderGained")) > 2, "a third leadership")
        await trial.until_published(20)
    assert len(trial.journal.delivered()) == 20
    assert await trial.term() <= 2


async def test_the_pooler_and_the_server_behind_it_fail(
    trial: Trial, database: Database, pgbouncer: PgBouncer
) -> None:
    async with trial.running(pgbouncer.dsn(database.name)):
        await trial.enqueue(2)
        await trial.until_published(2)
        # Behind a pooler, the server's own errors reach elections too.
        await trial.admin.execute(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
        await _end_pooled_sessions(trial)
        await until(lambda: bool(trial.journal.events("LeaderLost")), 8.0, "stepping down")
        await trial.admin.execute(f"ALTER DATABASE {database.name} RESET default_transaction_read_only")
        await _end_pooled_sessions(trial)
        await trial.enqueue(2)
        await trial.until_published(4, 8.0)
        await asyncio.to_thread(pgbouncer.kill)
        seen = len(trial.journal.events("Reconnecting"))
        await until(lambda: len(trial.journal.events("Reconnecting")) > seen, 5.0, "noticing it")
        await asyncio.to_thread(pgbouncer.start)
        await trial.enqueue(2)
        await trial.until_published(6, 5.0 + SLACK)
    assert set(trial.journal.delivered()) == {1, 2, 3, 4, 5, 6}


async def _end_pooled_sessions(trial: Trial) -> None:
    await trial.admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
