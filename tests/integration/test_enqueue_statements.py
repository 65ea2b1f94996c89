"""What enqueue does to the caller's connection: how many statements, and nothing besides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from outbox_core import schema
from outbox_core.errors import NotInTransaction, PermissionDenied, SchemaMissing
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from tests.services.postgres import Database

pytestmark = [pytest.mark.asyncio, pytest.mark.store]


def message(number: int = 0) -> Message:
    return Message("shop.order.placed.v1", {"number": number})


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    await schema.create(connection, "orders_outbox")
    yield connection
    await connection.close()


@contextmanager
def recorded(connection: asyncpg.Connection) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(query: Any) -> None:
        statements.append(query.query)

    with connection.query_logger(note):
        yield statements


async def test_one_statement_when_nothing_collides(connection: asyncpg.Connection) -> None:
    outbox, once = Outbox("orders_outbox"), message()
    async with connection.transaction():
        with recorded(connection) as single:
            await outbox.enqueue(connection, once)
        with recorded(connection) as batch:
            await outbox.enqueue_many(connection, [message(n) for n in range(100)])
        with recorded(connection) as locking:
            await outbox.enqueue(connection, Message("a.b.v1", 1, key="k"), serialize_key=True)
        with recorded(connection) as repeated:
            await outbox.enqueue(connection, once)
        with recorded(connection) as mixed:
            await outbox.enqueue_many(connection, [message(), once, message()])
        with recorded(connection) as nothing:
            await outbox.enqueue_many(connection, [])
    counts = [len(statements) for statements in (single, batch, locking, repeated, mixed, nothing)]
    assert counts == [1, 1, 1, 2, 2, 0]


async def test_one_statement_through_sqlalchemy(connection: asyncpg.Connection, database: Database) -> None:
    for driver in ("asyncpg", "psycopg"):
        engine = create_async_engine(make_url(database.dsn).set(drivername=f"postgresql+{driver}"))
        statements: list[str] = []
        async with engine.begin() as sqlalchemy:
            event.listen(
                engine.sync_engine,
                "before_cursor_execute",
                lambda *seen, statements=statements: statements.append(seen[2]),
            )
            await Outbox("orders_outbox").enqueue(sqlalchemy, message())
            await Outbox("orders_outbox").enqueue_many(sqlalchemy, [message(), message()])
        await engine.dispose()
        assert len(statements) == 2


async def test_no_commit_no_connection_no_setting(connection: asyncpg.Connection, database: Database) -> None:
    backends = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    settings = (
        "SELECT string_agg(name || setting, ',' ORDER BY name) FROM pg_settings WHERE source = 'session'"
    )
    before = [await connection.fetchval(backends), await connection.fetchval(settings)]
    async with connection.transaction():
        await Outbox("orders_outbox").enqueue(connection, message())
        xid = await connection.fetchval("SELECT pg_current_xact_id_if_assigned()::text")
        await Outbox("orders_outbox").enqueue_many(connection, [message(), message()])
        assert await connection.fetchval("SELECT pg_current_xact_id()::text") == xid
        assert connection.is_in_transaction()
        assert await connection.fetchval(backends) == before[0]
    assert await connection.fetchval(settings) == before[1]


async def test_a_waiting_writer_is_visible_as_a_running_transaction(
    connection: asyncpg.Connection, database: Database
) -> None:
    # A relay remembers how far it has read; it relies on seeing every writer that may still commit an earlier stamp.
    outbox = Outbox("orders_outbox")
    second = await asyncpg.connect(database.dsn)
    observer = await asyncpg.connect(database.dsn)
    waiting = "SELECT backend_xid FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'"
    try:
        for batch in (False, True):
            once = message()
            transaction, blocked = connection.transaction(), second.transaction()
            await transaction.start()
            await blocked.start()
            await outbox.enqueue(connection, once)
            again = [once, message()] if batch else [once]
            task = asyncio.create_task(outbox.enqueue_many(second, again))
            xid = None
            for _ in range(5000):
                if rows := await observer.fetch(waiting, second.get_server_pid()):
                    xid = rows[0][0]
                    break
                await asyncio.sleep(0.002)
            assert xid is not None
            await transaction.commit()
            await task
            await blocked.commit()
    finally:
        await second.close()
        await observer.close()


async def test_a_transaction_begun_by_hand_is_one(connection: asyncpg.Connection) -> None:
    await connection.execute("BEGIN")
    await Outbox("orders_outbox").enqueue(connection, message())
    await connection.execute("COMMIT")
    assert await Outbox("orders_outbox").count(connection) == 1


async def test_subclasses_of_a_connection_are_accepted(
    connection: asyncpg.Connection, database: Database
) -> None:
    class TracedConnection(asyncpg.Connection):
        pass

    traced = await asyncpg.connect(database.dsn, connection_class=TracedConnection)
    try:
        async with traced.transaction():
            await Outbox("orders_outbox").enqueue(traced, message())
    finally:
        await traced.close()
    assert await Outbox("orders_outbox").count(connection) == 1


async def test_psycopg_in_autocommit_with_a_transaction(
    connection: asyncpg.Connection, database: Database
) -> None:
    outbox = Outbox("orders_outbox")
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as psycopg_connection:
        async with psycopg_connection.transaction():
            await outbox.enqueue(psycopg_connection, message())
            assert await outbox.count(connection) == 0
        with pytest.raises(NotInTransaction):
            await outbox.enqueue(psycopg_connection, message())
    assert await outbox.count(connection) == 1


async def test_psycopg_pipeline_in_autocommit(connection: asyncpg.Connection, database: Database) -> None:
    # What is queued hides from the client whether a transaction is open; the answer must be right all the same.
    outbox = Outbox("orders_outbox")
    async with (
        await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as psycopg_connection,
        psycopg_connection.pipeline(),
    ):
        await psycopg_connection.execute("SELECT 1")
        with pytest.raises(NotInTransaction):
            await outbox.enqueue(psycopg_connection, message())
        async with psycopg_connection.transaction():
            await outbox.enqueue(psycopg_connection, message())
            assert await outbox.count(connection) == 0
    assert await outbox.count(connection) == 1


async def test_a_failed_transaction_fails_as_the_driver_says(connection: asyncpg.Connection) -> None:
    transaction = connection.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await connection.execute("SELECT 1 / 0")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await Outbox("orders_outbox").enqueue(connection, message())
    await transaction.rollback()


async def test_a_serialisation_failure_can_be_retried(
    connection: asyncpg.Connection, database: Database
) -> None:
    outbox, once = Outbox("orders_outbox"), message()
    other = await asyncpg.connect(database.dsn)
    try:
        transaction = other.transaction(isolation="serializable")
        await transaction.start()
        await other.fetchval("SELECT 1")  # its snapshot
        async with connection.transaction():
            sequence = await outbox.enqueue(connection, once)
        with pytest.raises(asyncpg.SerializationError):
            await outbox.enqueue(other, once)
        await transaction.rollback()
        async with other.transaction(isolation="serializable"):
            assert await outbox.enqueue(other, once) == sequence
    finally:
        await other.close()


async def test_a_missing_table_names_the_cure(connection: asyncpg.Connection, database: Database) -> None:
    for table in ("absent_outbox", "absent.orders_outbox"):
        with pytest.raises(SchemaMissing, match=r"outbox_core\.schema\.create"):
            await Outbox(table).enqueue(connection, message(), allow_autocommit=True)
    engine = create_async_engine(make_url(database.dsn).set(drivername="postgresql+asyncpg"))
    async with engine.connect() as sqlalchemy:
        with pytest.raises(SchemaMissing, match=r"schema\.create\(connection, .public\.absent_outbox.\)"):
            await Outbox("absent_outbox").enqueue(sqlalchemy, message())
    await engine.dispose()


async def test_a_producer_writes_but_reads_no_payload(
    connection: asyncpg.Connection, unique_name: str
) -> None:
    outbox, role = Outbox("orders_outbox"), f"producer_{unique_name}"
    await connection.execute(f"CREATE ROLE {role}")
    try:
        await connection.execute(schema.roles("orders_outbox", producer=role))
        await connection.execute(f"SET ROLE {role}")
        written = message()
        async with connection.transaction():
            await outbox.enqueue(connection, written)
            await outbox.enqueue_many(connection, [written, message()])
        for read in (
            outbox.get(connection, written.event_id, payload=True),
            outbox.pending(connection),
            outbox.count(connection),
        ):
            with pytest.raises(
                PermissionDenied, match=r"outbox_core\.schema\.roles\('public\.orders_outbox'"
            ):
                await read
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT payload FROM orders_outbox")
    finally:
        await connection.execute("RESET ROLE")
        await connection.execute(f"DROP OWNED BY {role}")
        await connection.execute(f"DROP ROLE {role}")
