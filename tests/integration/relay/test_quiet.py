"""A relay that has nothing to do leaves the database alone but for looking."""

from __future__ import annotations

import time

import pytest

from outbox_core.observer import BreakerOpened, LeaderGained, Published
from outbox_core.relay import Relay
from outbox_core.relay.claiming.claimer import Claimer
from outbox_core.store import Claim, Leased
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.brokers import unavailable
from tests.kit.gates import ignore
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import quiet_for, until

pytestmark = pytest.mark.asyncio

IDLE_SECONDS = 3.0
LOOKS = 200
HEARTBEATS = 30
"""More transactions than a leader's heartbeats and the server's own upkeep take meanwhile."""


class CountingStore(PostgresStore):
    claims = 0

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        self.claims += 1
        return await super().claim(table, claim)


async def test_an_idle_relay_uses_little_of_a_core(bench: Bench) -> None:
    """Less than 1 %, leadership included, which is looked at with a machine's slack."""
    async with Relay(bench.dsn, table=TABLE, dispatcher=ignore) as relay:
        await bench.enqueue(1)
        await bench.settled()
        # A relay expects more after what came.
        await quiet_for(1.0, lambda: relay.state != "running")
        busy = time.process_time()
        await quiet_for(IDLE_SECONDS, lambda: relay.state != "running", every=0.5)
        assert time.process_time() - busy < 0.05 * IDLE_SECONDS


async def test_a_leader_that_looks_in_vain_writes_nothing(bench: Bench) -> None:
    """A transaction id each, and a flush of the log, would be paid hundreds of times a second while work comes in."""
    store = CountingStore(bench.dsn)

    async def next_transaction() -> int:
        value: int = await bench.connection.fetchval(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        )
        return value

    settings = QUICK_POSTGRES | {"poll_interval": 0.01}
    async with Relay(lambda: store, table=TABLE, dispatcher=ignore, observers=[bench.heard], **settings):
        await until(lambda: bool(bench.heard.of(LeaderGained)))
        first, before = store.claims, await next_transaction()
        await until(lambda: store.claims >= first + LOOKS)
        assert await next_transaction() - before < HEARTBEATS
        await bench.enqueue(1)
        await until(lambda: bool(bench.heard.of(Published)))


async def test_hints_are_no_reason_to_hurry_while_the_only_destination_is_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints, rounds, one_round = 5, 0, Claimer.round

    async def counted(claimer: Claimer) -> bool:
        nonlocal rounds
        rounds += 1
        return await one_round(claimer)

    monkeypatch.setattr(Claimer, "round", counted)
    slow = {"poll_interval": 5.0, "backoff_base": 60.0, "backoff_cap": 60.0}
    async with bench.relay(unavailable, **slow) as relay:
        await bench.enqueue(1)
        await until(lambda: bool(bench.heard.of(BreakerOpened)))
        rounds = 0
        for _ in range(hints):
            before = rounds
            await bench.connection.execute("SELECT pg_notify('outbox', 'shop.orders_outbox')")
            await until(lambda: rounds > before)  # noqa: B023 - it is awaited here
            # It might go round by itself.
            await quiet_for(0.05, lambda: rounds > 2 * hints, "a round between two hints")
        assert relay.state == "running"
    assert rounds <= 2 * hints, "it went round by itself between two hints"
