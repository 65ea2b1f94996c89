"""A transaction that stays open keeps every row version since: claims must not wade through them each time."""

from __future__ import annotations

import statistics

import asyncpg
import pytest

from outbox_core.observer import Claimed, Published
from tests.integration.relay.bench import TABLE, Bench, ignore, until

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

DRAINED = 60_000
MESSAGES = 40
MEDIAN_SECONDS = 0.02
"""Of a claim. From the beginning, past all that is drained, it is twice as much and more; from where it last was, a
fraction of it."""
_DRAINED = f"""
    INSERT INTO {TABLE} (tenant_id, topic, event_id, digest, payload)
    SELECT '00000000-0000-0000-0000-000000000000', 'a.b.v1', gen_random_uuid(), decode(repeat('00', 32), 'hex'), '1'
    FROM generate_series(1, $1)
"""  # noqa: S608


_AGE = "SELECT age(backend_xmin) FROM pg_stat_activity WHERE pid = $1"


def published(bench: Bench) -> int:
    return sum(len(event.messages) for event in bench.heard.of(Published))


async def test_claims_stay_quick_under_an_old_snapshot(bench: Bench) -> None:
    connection = bench.connection
    holder = await asyncpg.connect(bench.dsn)
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert await holder.fetchval(f"SELECT count(*) FROM {TABLE}") == 0  # noqa: S608
        await connection.execute(_DRAINED, DRAINED)
        await connection.execute(f"UPDATE {TABLE} SET published_at = now()")  # noqa: S608
        await connection.execute(f"VACUUM {TABLE}")
        async with bench.relay(ignore, poll_interval=1.0):
            for number in range(MESSAGES):
                await bench.enqueue(number)
                await until(lambda n=number: published(bench) > n)
        claims = [event.seconds for event in bench.heard.of(Claimed)]
        age = await connection.fetchval(_AGE, holder.get_server_pid())
        assert age > MESSAGES, "the snapshot was not old"
        assert len(claims) > MESSAGES / 2
        assert statistics.median(claims) < MEDIAN_SECONDS
    finally:
        await holder.close()
