"""The claim's update stays HOT: it touches no indexed column and finds room on the row's own page."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from outbox_core import schema
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

ROWS = 100_000
BATCH = 1_000
IN_FLIGHT = 5

ENQUEUE = """
    INSERT INTO public.orders_outbox (id, tenant_id, topic, event_id, digest, payload, key, headers, traceparent)
    SELECT ids.id, gen_random_uuid(), 'billing.invoice.sent.v1', ids.id, sha256(ids.id::text::bytea),
        jsonb_build_object('number', n, 'text', repeat('x', 100 + n % 300)), 'k' || n % 100,
        '{"source": "test"}', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    FROM generate_series(1, $1::int) n,
        LATERAL (SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
            || '7' || substr(md5(random()::text || n), 1, 19))::uuid AS id) ids
"""
CLAIM = """
    UPDATE public.orders_outbox SET locked_at = now(), lock_token = $1::uuid, attempts = attempts + 1
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM public.orders_outbox
        WHERE published_at IS NULL AND dead_at IS NULL AND available_at <= now() AND locked_at IS NULL
        ORDER BY available_at, sequence LIMIT $2::int FOR UPDATE SKIP LOCKED
    ))
    RETURNING id
"""
PUBLISH = """
    UPDATE public.orders_outbox SET published_at = now(), locked_at = NULL, lock_token = NULL, last_error = NULL
    WHERE id = ANY ($1::uuid[])
"""
CLEAN = "DELETE FROM public.orders_outbox WHERE published_at IS NOT NULL"
COUNTERS = (
    "SELECT n_tup_upd, n_tup_hot_upd, n_tup_ins FROM pg_stat_user_tables WHERE relname = 'orders_outbox'"
)
TOKENS = [f"00000000-0000-0000-0000-{number:012}" for number in range(ROWS // BATCH)]


async def counters(database: Database, inserted: int) -> asyncpg.Record:
    """The counters once the worker's session, which has ended, has reported all of them."""
    connection = await asyncpg.connect(database.dsn)
    try:
        async with asyncio.timeout(15):
            while True:
                row = await connection.fetchrow(COUNTERS)
                if row is not None and row["n_tup_ins"] >= inserted:
                    return row
                await connection.execute("SELECT pg_sleep(0.05)")
    finally:
        await connection.close()


async def test_claims_of_100k_rows_are_hot(database: Database) -> None:
    connection = await asyncpg.connect(database.dsn)
    try:
        await schema.create(connection, "orders_outbox")
        await connection.execute("SET enable_seqscan = off; SET enable_sort = off; SET jit = off")
        await connection.execute(ENQUEUE, IN_FLIGHT * BATCH)
        claimed = 0
        for position, token in enumerate(TOKENS):
            ids = [row["id"] for row in await connection.fetch(CLAIM, token, BATCH)]
            claimed += len(ids)
            await connection.execute(ENQUEUE, BATCH)
            await connection.execute(PUBLISH, ids)
            if position % 20 == 19:
                await connection.execute(CLEAN)
        assert claimed == ROWS
    finally:
        await connection.close()
    row = await counters(database, ROWS + IN_FLIGHT * BATCH)
    # A completion names published_at, which is indexed, so every HOT update counted is a claim's.
    assert row["n_tup_upd"] >= ROWS
    assert row["n_tup_hot_upd"] / ROWS >= 0.95
