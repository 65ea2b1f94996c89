"""Upgrading and downgrading: same schema either way, one at a time, never long in the way of writers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import schema
from outbox_core.errors import SchemaBusy, SchemaError, SchemaNotEmpty
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

TABLE = "public.orders_outbox"
INSERT = """
    INSERT INTO public.orders_outbox (tenant_id, topic, event_id, digest, payload)
    VALUES (gen_random_uuid(), 'a.b.c.v1', gen_random_uuid(), decode(repeat('00', 32), 'hex'), '1')
"""
INVALIDATE = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = ANY ($1::text[]::regclass[])"
BUILD_WAITS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE query LIKE '%CREATE INDEX CONCURRENTLY%' AND wait_event_type = 'Lock' AND datname = current_database()
"""
# Everything the catalog keeps of a schema's tables and sequences that somebody could see the difference of.
CATALOG = """
    SELECT c.relname::text, c.relkind::text, c.relpersistence::text, c.reloptions::text,
        ARRAY(
            SELECT (a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage,
                    pg_get_expr(d.adbin, d.adrelid))::text
            FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum
        ),
        ARRAY(
            SELECT (conname, contype, convalidated, pg_get_constraintdef(oid))::text
            FROM pg_constraint WHERE conrelid = c.oid ORDER BY conname
        ),
        (SELECT (pg_get_indexdef(indexrelid), indisvalid, indisready)::text FROM pg_index WHERE indexrelid = c.oid),
        (SELECT (seqtypid::regtype, seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle)::text
            FROM pg_sequence WHERE seqrelid = c.oid),
        ARRAY(
            SELECT (refobjid::regclass, refobjsubid, deptype)::text
            FROM pg_depend WHERE objid = c.oid AND c.relkind = 'S' AND refclassid = 'pg_class'::regclass
        )
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relkind IN ('r', 'i', 'S') ORDER BY c.relname
"""


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def other(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    yield connection
    await connection.close()


async def catalog(connection: asyncpg.Connection, name: str) -> str:
    rows = "\n".join(str(tuple(row)) for row in await connection.fetch(CATALOG, name))
    return rows.replace(f"{name}.", "")


async def test_migrations_and_create_give_the_same_schema(connection: asyncpg.Connection) -> None:
    await schema.create(connection, "created.orders_outbox")
    applied = await schema.upgrade(connection, "migrated.orders_outbox")
    assert applied == schema.migrations()
    expected = await catalog(connection, "created")
    assert "orders_outbox_pending" in expected
    assert await catalog(connection, "migrated") == expected

    for version in (2, 1, 0):
        undone = await schema.downgrade(connection, "migrated.orders_outbox", to=version)
        assert [step.version for step in undone] == [version + 1]
        assert await schema.version(connection, "migrated.orders_outbox") == version
    assert await catalog(connection, "migrated") == ""
    await schema.upgrade(connection, "migrated.orders_outbox")
    assert await catalog(connection, "migrated") == expected


async def test_from_every_version_to_the_current_one(
    database: Database, connection: asyncpg.Connection
) -> None:
    for version in range(schema.CURRENT_VERSION + 1):
        table = f"from_{version}_outbox"
        await schema.upgrade(connection, table, to=version)
        assert await schema.version(connection, table) == version
        applied = await schema.upgrade(database.dsn, table)
        assert [step.version for step in applied] == [*range(version + 1, schema.CURRENT_VERSION + 1)]
        assert (await schema.verify(connection, table)).differences == ()


async def test_the_shared_tables_outlive_all_but_the_last_table(connection: asyncpg.Connection) -> None:
    await schema.create(connection, "a_outbox")
    await schema.create(connection, "b_outbox")
    await schema.downgrade(connection, "a_outbox", to=0)
    assert (await schema.verify(connection, "b_outbox")).differences == ()
    await schema.downgrade(connection, "b_outbox", to=0)
    assert await catalog(connection, "public") == ""


@pytest.mark.parametrize("start", [0, 1])
async def test_ten_starting_processes_do_not_collide(
    database: Database, connection: asyncpg.Connection, start: int
) -> None:
    await schema.upgrade(connection, TABLE, to=start)
    applied = await asyncio.gather(*(schema.upgrade(database.dsn, TABLE) for _ in range(10)))
    assert sorted(len(steps) for steps in applied) == [0] * 9 + [schema.CURRENT_VERSION - start]
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_different_tables_are_upgraded_at_once(
    database: Database, connection: asyncpg.Connection
) -> None:
    tables = [f"{part}.t{number}_outbox" for part in ("a", "b") for number in range(3)]
    await asyncio.gather(*(schema.upgrade(database.dsn, table) for table in tables))
    for table in tables:
        assert (await schema.verify(connection, table)).differences == ()


async def test_the_index_step_can_be_repeated_after_a_failure(connection: asyncpg.Connection) -> None:
    await schema.create(connection, TABLE)
    kept = await connection.fetchval("SELECT 'orders_outbox_pending'::regclass::oid")
    await connection.execute(
        INVALIDATE, ["orders_outbox_key", "orders_outbox_dead", "orders_outbox_dead_key"]
    )
    await connection.execute("UPDATE outbox_schema_version SET version = 1; DROP INDEX orders_outbox_tenant")
    step, *_ = await schema.upgrade(connection, TABLE)
    assert (step.version, step.transactional) == (2, False)
    assert (await schema.verify(connection, TABLE)).differences == ()
    assert await connection.fetchval("SELECT 'orders_outbox_pending'::regclass::oid") == kept


async def test_enqueue_never_waits_longer_than_lock_timeout(
    database: Database, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await schema.create(connection, TABLE)
    await connection.execute(INVALIDATE, ["orders_outbox_dead"])
    await connection.execute("UPDATE outbox_schema_version SET version = 1")
    reader = other.transaction()
    await reader.start()
    await other.fetch("SELECT FROM orders_outbox")
    # Dropping the invalid index needs ACCESS EXCLUSIVE: it queues behind the reader, and writers queue behind it.
    upgrading = asyncio.create_task(schema.upgrade(database.dsn, TABLE, lock_timeout=0.4, wait=30))
    try:
        waits: list[float] = []
        async with asyncio.timeout(20):
            while sum(wait > 0.05 for wait in waits) < 3:
                started = time.monotonic()
                await connection.execute(INSERT)
                waits.append(time.monotonic() - started)
                await asyncio.sleep(0.005)
        assert max(waits) < 0.4 + 0.5
        assert not upgrading.done()
    finally:
        await reader.rollback()
    assert [step.version for step in await upgrading] == [2, 3]
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_writers_go_on_while_an_index_build_waits(
    database: Database, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await schema.upgrade(connection, TABLE, to=1)
    writer = other.transaction()
    await writer.start()
    await other.execute(INSERT)
    upgrading = asyncio.create_task(schema.upgrade(database.dsn, TABLE, lock_timeout=0.1))
    try:
        async with asyncio.timeout(10):
            while not await connection.fetchval(BUILD_WAITS):
                await connection.execute("SELECT pg_sleep(0.01)")
        await asyncio.wait_for(connection.execute(INSERT), 2)
        assert not upgrading.done()
    finally:
        await writer.commit()
    await upgrading
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_locks_that_are_not_had_end_the_attempt(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await schema.upgrade(connection, TABLE, to=1)
    async with other.transaction():
        await other.execute(INSERT)
        with pytest.raises(SchemaBusy, match=r"not had within 0\.5 s"):
            await schema.downgrade(connection, TABLE, to=0, lock_timeout=0.1, wait=0.5)
    assert await schema.version(connection, TABLE) == 1


async def test_an_index_build_that_takes_too_long_is_stopped(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await schema.upgrade(connection, TABLE, to=1)
    async with other.transaction():
        await other.execute(INSERT)
        with pytest.raises(SchemaBusy, match="time limit"):
            await schema.upgrade(connection, TABLE, build_timeout=0.3)
    assert await schema.version(connection, TABLE) == 1
    assert not (await schema.verify(connection, TABLE)).ok
    await schema.upgrade(connection, TABLE)
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_messages_are_not_dropped_by_mistake(connection: asyncpg.Connection) -> None:
    await schema.create(connection, TABLE)
    await connection.execute(INSERT)
    with pytest.raises(SchemaNotEmpty, match="drop_messages=True"):
        await schema.downgrade(connection, TABLE, to=0)
    assert await connection.fetchval("SELECT count(*) FROM orders_outbox") == 1
    await schema.downgrade(connection, TABLE, to=0, drop_messages=True)
    assert await catalog(connection, "public") == ""


async def test_the_session_is_left_as_it_was(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await connection.execute("SET lock_timeout = '7s'; SET statement_timeout = '8s'")
    await schema.upgrade(connection, TABLE)
    await schema.downgrade(connection, TABLE, to=1)
    async with other.transaction():
        await other.execute(INSERT)
        with pytest.raises(SchemaBusy):
            await schema.upgrade(connection, TABLE, build_timeout=0.3)
    assert await connection.fetchval("SHOW lock_timeout") == "7s"
    assert await connection.fetchval("SHOW statement_timeout") == "8s"
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    assert await connection.fetchval(held) == 0


async def test_cancellation_gives_the_installer_lock_back(
    database: Database, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await schema.upgrade(connection, TABLE, to=1)
    async with other.transaction():
        await other.execute(INSERT)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await schema.upgrade(connection, TABLE)
    await schema.upgrade(other, TABLE, wait=1)
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_a_transaction_pooler_is_refused(database: Database, pgbouncer: PgBouncer) -> None:
    pooled = await asyncpg.connect(pgbouncer.dsn(database.name), statement_cache_size=0)
    try:
        with pytest.raises(SchemaError, match="transaction pooler"):
            await schema.upgrade(pooled, TABLE)
        assert await schema.create(pooled, TABLE)
        assert (await schema.verify(pooled, TABLE)).differences == ()
    finally:
        await pooled.close()


async def test_what_cannot_work_is_refused(connection: asyncpg.Connection) -> None:
    async with connection.transaction():
        with pytest.raises(SchemaError, match="outside a transaction"):
            await schema.upgrade(connection, TABLE)
    for version in (-1, schema.CURRENT_VERSION + 1):
        with pytest.raises(SchemaError, match=f"no schema version {version}"):
            await schema.upgrade(connection, TABLE, to=version)
        with pytest.raises(SchemaError, match=f"no schema version {version}"):
            await schema.downgrade(connection, TABLE, to=version)
    with pytest.raises(SchemaError, match="lock_timeout"):
        await schema.upgrade(connection, TABLE, lock_timeout=0)
