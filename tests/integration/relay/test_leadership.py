"""One relay leads, the others stand by: how fast they take over, and what a deposed leader may still do."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from typing import Any

import asyncpg
import pytest

from outbox_core.errors import SchemaError
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.integration.relay.trial import TABLE, Trial
from tests.kit.deliveries import claim
from tests.kit.settings import QUICK_TAKEOVER
from tests.kit.waiting import quiet_for, until
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.asyncio

SLACK = 2.0
"""Seconds that a loaded machine may add."""


@pytest.mark.parametrize(
    ("fault", "within"),
    [(signal.SIGKILL, 0.5), (signal.SIGTERM, 0.5), (signal.SIGSTOP, QUICK_TAKEOVER["takeover"])],
)
async def test_a_stand_by_takes_over(trial: Trial, fault: signal.Signals, within: float) -> None:
    async with trial.child() as leader:
        await leader.until_leading()
        async with trial.running():
            await trial.enqueue(2)
            await trial.until_published(2)
            term = await trial.term()
            assert {line["pid"] for line in trial.journal.events("Claimed")} == {leader.pid}
            leader.send(fault)
            if fault is not signal.SIGSTOP:
                await leader.ended()
            await trial.enqueue(2)
            await trial.until_published(4, within + SLACK)
            assert await trial.term() == term + 1


async def test_a_stand_by_says_once_that_it_is_one(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    def said() -> int:
        return [record.getMessage() for record in caplog.records].count(
            f"public.{TABLE}: standing by: another relay leads"
        )

    caplog.set_level(logging.INFO, "outbox_core.relay")
    async with trial.child() as leader:
        await leader.until_leading()
        async with trial.running():
            await until(lambda: said() == 1, 5.0, "a line about standing by")
            # It campaigns four more times.
            await quiet_for(QUICK_TAKEOVER["takeover"] / 2, lambda: said() > 1, "a second line")
            leader.send(signal.SIGTERM)
            await until(lambda: bool(_gained(trial)), 5.0, "taking over")
            assert said() == 1


def _gained(trial: Trial) -> list[int]:
    return [line["term"] for line in trial.journal.events("LeaderGained") if line["pid"] == os.getpid()]


async def test_a_thawed_leader_steps_down_and_claims_nothing(trial: Trial) -> None:
    async with trial.child() as leader:
        await leader.until_leading()
        leader.send(signal.SIGSTOP)
        async with trial.running():
            await trial.enqueue(2)
            await trial.until_published(2)
            term = await trial.term()
            leader.send(signal.SIGCONT)
            await leader.until_seen("event", name="LeaderLost")
            await trial.enqueue(2)
            await trial.until_published(4)
            assert await trial.term() == term
    assert not leader.seen("event", name="Claimed")


async def test_a_stand_by_takes_over_from_a_leader_that_the_network_cut_off(trial: Trial) -> None:
    async with (
        FaultProxy.to_postgres(trial.dsn) as proxy,
        trial.child(dsn=proxy.dsn(trial.dsn)) as leader,
    ):
        await leader.until_leading()
        async with trial.running():
            await trial.enqueue(2)
            await trial.until_published(2)
            term = await trial.term()
            proxy.hold()
            await trial.enqueue(2)
            await trial.until_published(4, QUICK_TAKEOVER["takeover"] + SLACK)
            await proxy.wait_for(lambda p: p.requests.held > 0)
            assert await trial.term() == term + 1
            proxy.pass_through()
            await leader.until_seen("event", name="LeaderLost")
            await trial.enqueue(2)
            await trial.until_published(6)
            assert await trial.term() == term + 1
    assert set(trial.journal.delivered()) == {1, 2, 3, 4, 5, 6}


async def _depose(trial: Trial) -> None:
    """End the session that holds the leader's lock."""
    await trial.admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )


async def test_a_leader_whose_control_session_is_ended_steps_down_and_is_elected_again(trial: Trial) -> None:
    async with trial.running():
        await trial.enqueue(1)
        await trial.until_published(1)
        await _depose(trial)
        await until(lambda: len(trial.journal.events("LeaderLost")) == 1, 3.0, "stepping down")
        await until(lambda: len(trial.journal.events("LeaderGained")) == 2, 3.0, "a second term")
        first, second = (line["term"] for line in trial.journal.events("LeaderGained"))
        assert second == first + 1
        holders = await trial.admin.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert holders == 1
        await trial.enqueue(1)
        await trial.until_published(2)


async def test_a_deposed_leader_claims_nothing(trial: Trial) -> None:
    await trial.enqueue(3)
    table = TableName.parse(TABLE)
    store = PostgresStore(trial.dsn, timeout=2.0, takeover=2.0)
    await store.open([table])
    try:
        election = store.election(table)
        old = await election.campaign()
        new = await election.campaign()
        assert (old, new) == (1, 2)
        terms = {term: (await store.claim(table, claim(term=term))).count for term in (old, None, new)}
        assert terms[old] == 0
        assert terms[None] == 3
        assert await election.heartbeat(1) is False
        await election.resign(1)
        assert await trial.admin.fetchval("SELECT holder FROM outbox_leader") is not None
        assert await election.heartbeat(2) is True
    finally:
        await store.close()


async def test_what_is_wrong_with_one_table_costs_no_other_its_leader(trial: Trial) -> None:
    """Their locks are of one session."""
    await trial.admin.execute("CREATE SCHEMA other")
    await trial.create("other.bills_outbox")
    async with trial.running(tables=[TABLE, "other.bills_outbox"]):
        await until(lambda: len(trial.journal.events("LeaderGained")) == 2, 5.0, "leading both")
        await trial.admin.execute("DROP SCHEMA other CASCADE")
        await until(
            lambda: bool(trial.journal.events("LeaderLost", table="other.bills_outbox")), 5.0, "losing one"
        )
        await until(lambda: len(trial.journal.events("Reconnecting")) >= 5, 10.0, "campaigning in vain")
        await trial.enqueue(3)
        await trial.until_published(3)
        assert trial.journal.events("LeaderLost", table=f"public.{TABLE}") == []


async def test_who_cannot_lead_keeps_no_lock(trial: Trial) -> None:
    """Its session lives on, for other tables: another relay, which may be able to, must get it."""
    table = TableName.parse(TABLE)
    mine, theirs = (PostgresStore(trial.dsn, timeout=2.0, takeover=2.0) for _ in range(2))
    try:
        for store in (mine, theirs):
            await store.open([table])
        first = mine.election(table)
        assert await first.campaign() == 1
        await trial.admin.execute("ALTER TABLE outbox_leader RENAME TO hidden")
        with pytest.raises(SchemaError, match=r"there is no table public\.outbox_leader"):
            await first.heartbeat(1)
        with pytest.raises(SchemaError, match=r"there is no table public\.outbox_leader"):
            await first.campaign()
        await trial.admin.execute("ALTER TABLE hidden RENAME TO outbox_leader")
        assert await theirs.election(table).campaign() == 2
        assert await first.campaign() is None
    finally:
        for store in (mine, theirs):
            await store.close()


async def test_behind_a_pooler_who_led_may_lead_again_at_once(trial: Trial) -> None:
    """It is the row alone that decides there; nobody else does before the leader has fallen silent."""
    table = TableName.parse(TABLE)
    mine, theirs = (PostgresStore(trial.dsn, timeout=2.0, takeover=30.0) for _ in range(2))
    try:
        for store in (mine, theirs):
            await store.open([table])
            store._sessions.pooled = True
        assert await mine.election(table).campaign() == 1
        assert await theirs.election(table).campaign() is None
        assert await mine.election(table).campaign() == 2
    finally:
        for store in (mine, theirs):
            await store.close()


async def test_a_takeover_waits_for_a_claim_in_progress(trial: Trial) -> None:
    await trial.enqueue(3)
    async with trial.gate(closed=True) as gate, trial.child(database_timeout=2.0, lock_ttl=6.0) as leader:
        await gate.until_waiting()
        campaign = asyncio.create_task(_campaign(trial))
        await trial.until_session("wait_event_type = 'Lock' AND query LIKE '%term + 1%'")
        assert not campaign.done()
        await gate.open()
        assert await campaign is not None
        await leader.until_seen("event", name="LeaderLost")
        await trial.until_published(3)
    assert sorted(trial.journal.delivered()) == [1, 2, 3]


async def _campaign(trial: Trial) -> int | None:
    """Take a term without the session lock, as a relay behind a pooler would when the leader seems silent."""
    connection = await _connect(trial)
    try:
        found: int | None = await connection.fetchval(
            "UPDATE outbox_leader SET term = term + 1 WHERE table_name = $1 RETURNING term", TABLE
        )
        return found
    finally:
        connection.terminate()


async def _connect(trial: Trial) -> Any:
    return await asyncpg.connect(
        trial.dsn, timeout=5, command_timeout=5, server_settings={"application_name": "outbox:test"}
    )


async def test_workers_side_by_side_lose_nothing_and_repeat_nothing(trial: Trial) -> None:
    settings: dict[str, Any] = {"single_active": False, "batch_size": 5, "concurrency": 2}
    async with trial.child(**settings), trial.child(**settings), trial.running(**settings):
        began = time.monotonic()
        while len({line["pid"] for line in trial.journal.read("ack")}) < 3:
            assert time.monotonic() - began < 15.0
            await trial.enqueue(10)
            await trial.enqueue(1, "slow", key="k")
            await asyncio.sleep(0.05)
        rows = await trial.rows()
        await trial.until_published(len(rows), 20.0)
    delivered = trial.journal.delivered()
    assert len(delivered) == len(set(delivered))
    assert set(delivered) == set(rows)
    assert all(row["attempts"] == 1 for row in (await trial.rows()).values())
