"""Leases and shutdown: nothing starts too late, nothing is kept too long, and stopping takes as long as it says."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import pytest

from outbox_core.relay.settings import MARGIN
from tests.integration.relay.trial import Trial
from tests.kit.settings import QUICK_TAKEOVER
from tests.kit.waiting import until
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.asyncio

SLACK = 0.5
TRUSTED = (
    QUICK_TAKEOVER["lock_ttl"]
    - QUICK_TAKEOVER["dispatch_timeout"]
    - QUICK_TAKEOVER["database_timeout"]
    - MARGIN
)


async def test_a_slow_batch_gives_its_unstarted_rows_back(trial: Trial) -> None:
    """Each takes 0.3 s and one goes at a time, so a lease of 3 s cannot hold them all."""
    await trial.enqueue(10, "slow")
    async with trial.running(concurrency=1):
        await trial.until_published(10, 15.0)
    claims = trial.journal.events("Claimed")
    for line in trial.journal.read("dispatch"):
        claimed_at = max(claim["at"] for claim in claims if claim["at"] <= line["at"])
        assert line["at"] - claimed_at < TRUSTED + 0.2
    assert [line["reason"] for line in trial.journal.events("Released")]
    assert not trial.journal.events("LeaseLost")
    assert sorted(trial.journal.delivered()) == list(range(1, 11))
    assert all(row["attempts"] == 1 for row in (await trial.rows()).values())


@pytest.mark.parametrize("on_published", ["mark", "delete"])
async def test_a_lost_lease_changes_nothing(trial: Trial, on_published: str) -> None:
    await trial.enqueue(1, "slow")
    async with trial.running(on_published=on_published):
        await until(lambda: bool(trial.journal.read("dispatch")), 5.0, "the dispatch")
        await trial.admin.execute(
            "UPDATE orders_outbox SET lock_token = gen_random_uuid(), last_error = 'theirs', attempts = 3"
        )
        before = (await trial.rows())[1]
        await until(lambda: bool(trial.journal.events("LeaseLost")), 5.0, "the loss")
        assert (await trial.rows())[1] == before
        await trial.until_rows("published_at IS NULL", 0, 10.0)
    assert trial.journal.delivered() == [1, 1]
    assert len(await trial.rows()) == (on_published == "mark")


async def test_published_rows_can_be_deleted(trial: Trial) -> None:
    await trial.enqueue(20)
    await trial.enqueue(5, key="k")
    [dead] = await trial.enqueue(1, "permanent")
    async with trial.running(on_published="delete"):
        await trial.until_rows("true", 1, 5.0)
    assert list(await trial.rows()) == [dead]
    assert len(trial.journal.delivered()) == 25


@pytest.mark.parametrize("topic", ["ok", "slow", "hanging", "deaf"])
async def test_a_stop_ends_in_its_time_whatever_the_broker_does(trial: Trial, topic: str) -> None:
    await trial.enqueue(5, topic)
    relay = trial.relay(concurrency=2, dispatch_timeout=5.0, lock_ttl=8.0)
    await relay.start()
    await until(lambda: len(trial.journal.read("dispatch")) >= 2, 5.0, "the dispatch")
    began = time.monotonic()
    await relay.stop(0.5)
    assert time.monotonic() - began < 0.5 + 1.0 + SLACK
    await asyncio.wait_for(relay.wait(), 0.5)
    dispatched = {line["sequence"] for line in trial.journal.read("dispatch")}
    claimed = len(trial.journal.events("Claimed"))
    rows = await trial.rows()
    for sequence, row in rows.items():
        if sequence not in dispatched:
            assert row["locked_at"] is None
            assert row["attempts"] == 0
    if topic == "hanging":
        assert len(dispatched) == 2
        assert [rows[sequence]["attempts"] for sequence in sorted(dispatched)] == [1, 1]
    assert len(trial.journal.events("Claimed")) == claimed
    assert await trial.sessions() == []
    if topic == "deaf":
        await until(lambda: len(trial.journal.read("ack")) >= 2, 8.0, "the end of the deaf dispatches")


@pytest.mark.parametrize("fault", [FaultProxy.hold, FaultProxy.hold_responses])
@pytest.mark.parametrize("topic", ["ok", "hanging"])
async def test_a_stop_ends_in_its_time_whatever_the_database_does(
    trial: Trial, fault: Callable[[FaultProxy], None], topic: str
) -> None:
    async with FaultProxy.to_postgres(trial.dsn) as proxy:
        await trial.enqueue(2, topic)
        relay = trial.relay(
            proxy.dsn(trial.dsn), dispatch_timeout=30.0, database_timeout=5.0, lock_ttl=60.0, takeover=8.0
        )
        await relay.start()
        await until(lambda: len(trial.journal.read("dispatch")) == 2, 5.0, "the dispatch")
        fault(proxy)
        await trial.enqueue(1)
        await proxy.wait_for(lambda p: p.requests.held + p.responses.held > 0)
        began = time.monotonic()
        await relay.stop(0.5)
        assert time.monotonic() - began < 0.5 + 1.0 + SLACK
        await relay.wait()
        assert time.monotonic() - began < 0.5 + 1.0 + SLACK
        assert len(trial.journal.events("Stopped")) == 1


async def test_leaving_the_block_takes_no_longer_than_a_stop(trial: Trial) -> None:
    async with FaultProxy.to_postgres(trial.dsn) as proxy:
        relay = trial.relay(proxy.dsn(trial.dsn), database_timeout=5.0, lock_ttl=20.0, takeover=8.0)
        async with relay:
            await until(lambda: bool(trial.journal.events("LeaderGained")), 5.0, "leading")
            proxy.hold()
            await proxy.wait_for(lambda p: p.requests.held > 0)
            stops: list[asyncio.Task[None]] = []
            asyncio.get_running_loop().call_later(
                0.1, lambda: stops.append(asyncio.create_task(relay.stop(0.2)))
            )
            began = time.monotonic()
        assert time.monotonic() - began < 0.3 + 1.0 + SLACK
        await asyncio.gather(*stops)


async def test_a_stop_while_the_relay_starts_ends_in_its_time(trial: Trial) -> None:
    async with FaultProxy.to_postgres(trial.dsn) as proxy:
        proxy.hold()
        relay = trial.relay(proxy.dsn(trial.dsn), database_timeout=5.0, lock_ttl=20.0, takeover=8.0)
        starting = asyncio.create_task(relay.start())
        await proxy.wait_for(lambda p: p.requests.held > 0)
        began = time.monotonic()
        await relay.stop(0.2)
        await asyncio.wait({starting}, timeout=5.0)
        assert time.monotonic() - began < 0.2 + 1.0 + SLACK
        assert starting.done()
        starting.exception()


@pytest.mark.parametrize("topic", ["slow", "hanging"])
async def test_sigterm_stops_a_relay_in_the_foreground(trial: Trial, topic: str) -> None:
    await trial.enqueue(6, topic)
    async with trial.child(grace=1.0, concurrency=2, dispatch_timeout=5.0, lock_ttl=8.0) as child:
        await child.until_seen("dispatch", count=2)
        began = time.monotonic()
        child.send(signal.SIGTERM)
        assert await child.ended(5.0) == 0
        seconds = child.seen("ended")[0]["at"] - began
        stopped = child.seen("event", name="Stopped")
    assert seconds < 1.0 + 1.0 + SLACK
    assert stopped
    dispatched = {line["sequence"] for line in trial.journal.read("dispatch")}
    rows = await trial.rows()
    assert all(row["locked_at"] is None for row in rows.values())
    assert all(rows[sequence]["attempts"] == 0 for sequence in rows.keys() - dispatched)
    if topic == "slow":
        assert {s for s, row in rows.items() if row["published_at"]} == dispatched
    assert await trial.admin.fetchval("SELECT holder FROM outbox_leader") is None


async def test_sigterm_ends_a_relay_whose_database_is_cut_off(trial: Trial) -> None:
    async with FaultProxy.to_postgres(trial.dsn) as proxy:
        dsn = proxy.dsn(trial.dsn)
        async with trial.child(
            dsn=dsn, grace=0.5, database_timeout=5.0, lock_ttl=20.0, takeover=8.0
        ) as child:
            await child.until_leading()
            proxy.hold()
            await proxy.wait_for(lambda p: p.requests.held > 0)
            began = time.monotonic()
            child.send(signal.SIGTERM)
            assert await child.ended(15.0) == 0
            assert child.seen("ended")[0]["at"] - began < 0.5 + 1.0 + SLACK


async def test_many_tables_share_a_few_sessions_and_do_not_starve_each_other(trial: Trial) -> None:
    tables = [f"t{number}_outbox" for number in range(6)]
    for table in tables:
        await trial.create(table)
    await trial.enqueue(200, "slow", table=tables[0])
    await trial.enqueue(200, "failing", table=tables[1])
    async with trial.running(tables=tables, concurrency=12, max_attempts=50):
        await until(lambda: bool(trial.journal.read("dispatch", table=f"public.{tables[0]}")), 5.0, "work")
        for table in tables[2:]:
            await trial.enqueue(3, table=table)
            assert await trial.until_published(3, 5.0, table) < 2.0
        assert len(await trial.sessions()) <= 5
        assert await trial.count("published_at IS NULL", tables[0]) > 0
