"""Wrong arguments are refused by name and value before the database is asked for anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import asyncpg
import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from outbox_core import schema
from outbox_core.errors import SchemaError
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

TABLE = "public.orders_outbox"


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    yield connection
    await connection.close()


async def assert_refused(given: Any, shown: str) -> None:
    for call in (schema.create, schema.verify, schema.version, schema.require):
        with pytest.raises(SchemaError) as raised:
            await call(given, TABLE)
        assert f"{TABLE}: expected an asyncpg connection, got {shown};" in str(raised.value)


async def test_what_is_no_asyncpg_connection(database: Database) -> None:
    engine = create_async_engine(make_url(database.dsn).set(drivername="postgresql+asyncpg"))
    async with (
        asyncpg.create_pool(database.dsn, min_size=0) as pool,
        await psycopg.AsyncConnection.connect(database.dsn) as other,
        AsyncSession(engine) as session,
    ):
        strangers: list[tuple[Any, str]] = [
            (engine, "sqlalchemy.ext.asyncio.engine.AsyncEngine"),
            (session, "sqlalchemy.ext.asyncio.session.AsyncSession"),
            (pool, "asyncpg.pool.Pool"),
            (other, "psycopg.AsyncConnection"),
            (None, "NoneType"),
        ]
        for given, shown in strangers:
            await assert_refused(given, shown)
            with pytest.raises(SchemaError, match=f"expected an asyncpg connection or a DSN, got {shown};"):
                await schema.upgrade(given, TABLE)
            with pytest.raises(SchemaError, match=f"expected an asyncpg connection or a DSN, got {shown};"):
                await schema.downgrade(given, TABLE, to=0)
        async with pool.acquire() as acquired:
            assert await schema.create(acquired, TABLE)
    await engine.dispose()


async def test_a_dsn_is_refused_without_showing_it() -> None:
    dsn: Any = "postgresql://me:secret@nowhere/"
    await assert_refused(dsn, "str")
    with pytest.raises(SchemaError) as raised:
        await schema.verify(dsn, TABLE)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("value", ["2", None, True, float("nan"), float("inf"), -1, 10**400])
async def test_waits_that_are_no_seconds(connection: asyncpg.Connection, value: Any) -> None:
    for name in ("lock_timeout", "wait", "build_timeout"):
        calls: list[Awaitable[object]] = [schema.upgrade(connection, TABLE, **{name: value})]
        calls.append(schema.downgrade(connection, TABLE, to=0, **{name: value}))
        if name != "build_timeout":
            calls.append(schema.create(connection, TABLE, **{name: value}))
        for call in calls:
            with pytest.raises(SchemaError) as raised:
                await call
            assert f"{TABLE}: {name} must be a number of seconds, at least 0" in str(raised.value)
            assert f"got {value!r}" in str(raised.value)
    with pytest.raises(SchemaError, match="lock_timeout must be a number of seconds"):
        schema.script(TABLE, lock_timeout=value)


@pytest.mark.parametrize("value", ["2", None, True, 1.0, float("nan"), -1, 99])
async def test_versions_there_are_none_of(connection: asyncpg.Connection, value: Any) -> None:
    expected = (
        f"{TABLE}: there is no schema version {value!r}; this library knows 0 to {schema.CURRENT_VERSION}"
    )
    for call in (schema.upgrade, schema.downgrade):
        with pytest.raises(SchemaError) as raised:
            await call(connection, TABLE, to=value)
        assert str(raised.value) == expected
    for name in ("from_version", "to_version"):
        with pytest.raises(SchemaError) as raised:
            schema.script(TABLE, **{name: value})
        assert str(raised.value) == expected
