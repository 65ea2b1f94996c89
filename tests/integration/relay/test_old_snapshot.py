"""A transaction that stays open keeps every row version since: claims must not wade through them each time."""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Claimed, Published
from outbox_core.relay import Relay
from outbox_core.store import KeySpan, View
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.gates import ignore
from tests.kit.waiting import until

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

DRAINED = 60_000
MESSAGES = 40
MEDIAN_SECONDS = 0.02
"""Of a claim. From the beginning, past all that is drained, it is twice as much and more; from where it last was, a
fraction of it."""
_DRAINED = f"""
    INSERT INTO {TABLE} (tenant_id, topic, event_id, digest, payload, key)
    SELECT
        '00000000-0000-0000-0000-000000000000', 'a.b.v1', gen_random_uuid(), decode(repeat('00', 32), 'hex'), '1', $2
    FROM generate_series(1, $1)
"""  # noqa: S608
_AGE = "SELECT age(backend_xmin) FROM pg_stat_activity WHERE pid = $1"


def published(bench: Bench) -> int:
    return sum(len(event.messages) for event in bench.heard.of(Published))


@asynccontextmanager
async def old_snapshot(bench: Bench, *, key: str | None) -> AsyncIterator[None]:
    """Somebody looked at the table before it was filled and drained, and has not ended since."""
    connection = bench.connection
    holder = await asyncpg.connect(bench.dsn)
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert await holder.fetchval(f"SELECT count(*) FROM {TABLE}") == 0  # noqa: S608
        await connection.execute(_DRAINED, DRAINED, key)
        await connection.execute(f"UPDATE {TABLE} SET published_at = now()")  # noqa: S608
        await connection.execute(f"VACUUM {TABLE}")
        yield
        age = await connection.fetchval(_AGE, holder.get_server_pid())
        assert age > MESSAGES, "the snapshot was not old"
    finally:
        await holder.close()


async def test_claims_stay_quick_under_an_old_snapshot(bench: Bench) -> None:
    async with old_snapshot(bench, key=None), bench.relay(ignore, poll_interval=1.0):
        for number in range(MESSAGES):
            await bench.enqueue(number)
            await until(lambda n=number: published(bench) > n)
    claims = [event.seconds for event in bench.heard.of(Claimed)]
    assert len(claims) > MESSAGES / 2
    assert statistics.median(claims) < MEDIAN_SECONDS


class LooksSeen(PostgresStore):
    """Notes from where on keys are looked at."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.floors: list[int] = []

    async def predecessors(self, table: TableName, spans: Sequence[KeySpan], view: View) -> Any:
        self.floors += [span.after for span in spans]
        return await super().predecessors(table, spans, view)


async def test_claims_of_a_busy_key_stay_quick_under_an_old_snapshot(bench: Bench) -> None:
    """What was delivered of the key is in its index still, before everything that is claimed of it now."""
    store = LooksSeen(bench.dsn)
    order: list[int] = []

    async def dispatch(message: DispatchedMessage) -> None:
        order.append(message.meta.sequence)

    async def deliver(number: int) -> None:
        await bench.enqueue(number, key="busy")
        await until(lambda: published(bench) > number)

    relay = Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=(bench.heard,))
    async with old_snapshot(bench, key="busy"), relay:
        numbers = iter(range(1_000))
        while (
            max(store.floors, default=0) < DRAINED
        ):  # it is found out what looks cost, and from where they are needed
            await deliver(next(numbers))
        before = len(bench.heard.of(Claimed))
        for _ in range(MESSAGES):
            await deliver(next(numbers))
    claims = [event.seconds for event in bench.heard.of(Claimed)]
    assert order == sorted(order)
    assert len(claims) - before > MESSAGES / 2
    assert statistics.median(claims[before:]) < MEDIAN_SECONDS / 2
