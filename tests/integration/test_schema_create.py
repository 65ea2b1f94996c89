"""Creating tables: once, by many at a time, side by side, and whatever the session looks like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import TableName, schema
from outbox_core.errors import (
    InvalidTableName,
    PermissionDenied,
    SchemaBusy,
    SchemaError,
    SchemaMismatch,
    SchemaTooNew,
    SchemaTooOld,
)
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

INSERT = """
    INSERT INTO public.orders_outbox
        (tenant_id, event_id, topic, digest, payload, body, content_type, attempts, replays)
    VALUES
        (gen_random_uuid(), gen_random_uuid(), 'a.b.v1', {digest}, {payload}, {body}, {type}, {attempts}, {replays})
    RETURNING id
"""
GOOD = {
    "digest": "decode(repeat('ab', 32), 'hex')",
    "payload": "'null'",
    "body": "NULL",
    "type": "NULL",
    "attempts": "0",
    "replays": "0",
}


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    yield connection
    await connection.close()


async def test_the_first_call_creates_and_the_second_finds(connection: asyncpg.Connection) -> None:
    assert await schema.create(connection, "orders_outbox") is True
    assert await schema.create(connection, TableName("public", "orders_outbox")) is False
    assert await schema.version(connection, "orders_outbox") == schema.CURRENT_VERSION
    assert (await schema.verify(connection, "orders_outbox")).differences == ()


async def test_tables_side_by_side_share_what_the_schema_shares(connection: asyncpg.Connection) -> None:
    longest = "a" * 48
    for table in ("orders_outbox", "order", longest, "billing.orders_outbox", "select.user"):
        assert await schema.create(connection, table)
    for table in ("orders_outbox", "order", longest, "billing.orders_outbox", "select.user"):
        assert str(await schema.verify(connection, table)) == (
            f"{TableName.parse(table)} is as expected (schema version {schema.CURRENT_VERSION})"
        )
    leaders = await connection.fetch(
        'SELECT table_name FROM public.outbox_leader ORDER BY table_name COLLATE "C"'
    )
    assert [row["table_name"] for row in leaders] == [longest, "order", "orders_outbox"]


@pytest.mark.parametrize("tables", [["orders_outbox"] * 10, [f"t{number}_outbox" for number in range(10)]])
async def test_ten_sessions_at_once(database: Database, tables: list[str]) -> None:
    connections = await asyncio.gather(*(asyncpg.connect(database.dsn) for _ in tables))
    try:
        created = await asyncio.gather(
            *(
                schema.create(connection, f"fresh.{table}")
                for connection, table in zip(connections, tables, strict=True)
            )
        )
        assert sum(created) == len(set(tables))
        for table in set(tables):
            assert (await schema.verify(connections[0], f"fresh.{table}")).differences == ()
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


async def test_is_part_of_the_callers_transaction(connection: asyncpg.Connection) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SET LOCAL lock_timeout = '7s'")
    assert await schema.create(connection, "orders_outbox")
    assert await connection.fetchval("SHOW lock_timeout") == "7s"
    assert (await schema.verify(connection, "orders_outbox")).ok
    await transaction.rollback()
    assert await schema.version(connection, "orders_outbox") == 0
    assert await connection.fetchval("SELECT to_regclass('public.outbox_leader')") is None


async def test_a_hostile_search_path_changes_nothing(connection: asyncpg.Connection) -> None:
    await connection.execute("""
        CREATE SCHEMA evil;
        CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
        CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
        CREATE FUNCTION evil.gen_random_uuid() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid';
        CREATE FUNCTION evil.octet_length(bytea) RETURNS int LANGUAGE sql AS 'SELECT 0';
        CREATE TABLE evil.outbox_leader (unrelated int);
        CREATE TABLE evil.orders_outbox (unrelated int);
        SET search_path = evil, pg_catalog;
    """)
    await schema.create(connection, "orders_outbox")
    await schema.upgrade(connection, "other_outbox")
    assert (await schema.verify(connection, "orders_outbox")).differences == ()
    assert (await schema.verify(connection, "other_outbox")).differences == ()
    await connection.execute("SET search_path = public")
    assert (await schema.verify(connection, "orders_outbox")).differences == ()
    assert await connection.fetchval("SHOW search_path") == "public"


async def test_each_legal_state_is_accepted_and_no_other(connection: asyncpg.Connection) -> None:
    await schema.create(connection, "orders_outbox")
    row = await connection.fetchval(INSERT.format(**GOOD))
    legal = {(0, 0, 0, 0), (0, 0, 1, 1), (1, 0, 0, 0), (0, 1, 0, 0)}
    for bits in range(16):
        state = (bits >> 3 & 1, bits >> 2 & 1, bits >> 1 & 1, bits & 1)
        update = connection.execute(
            """
            UPDATE public.orders_outbox SET
                published_at = CASE $2::int WHEN 1 THEN now() END, dead_at = CASE $3::int WHEN 1 THEN now() END,
                locked_at = CASE $4::int WHEN 1 THEN now() END,
                lock_token = CASE $5::int WHEN 1 THEN gen_random_uuid() END
            WHERE id = $1
            """,
            row,
            *state,
        )
        if state in legal:
            assert await update == "UPDATE 1", state
        else:
            with pytest.raises(asyncpg.CheckViolationError, match="orders_outbox_state_check"):
                await update


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"payload": "NULL"}, "content_check"),
        ({"body": "'x'"}, "content_check"),
        ({"type": "'text/plain'"}, "type_check"),
        ({"digest": "'short'"}, "digest_check"),
        ({"attempts": "-1"}, "attempts_check"),
        ({"replays": "-1"}, "replays_check"),
    ],
)
async def test_illegal_rows_are_refused(
    connection: asyncpg.Connection, values: dict[str, str], constraint: str
) -> None:
    await schema.create(connection, "orders_outbox")
    await connection.execute(INSERT.format(**GOOD))
    await connection.execute(
        INSERT.format(**GOOD | {"payload": "NULL", "body": "'x'", "type": "'text/plain'"})
    )
    with pytest.raises(asyncpg.CheckViolationError, match=f"orders_outbox_{constraint}"):
        await connection.execute(INSERT.format(**GOOD | values))


async def test_names_of_the_shared_tables_are_refused(connection: asyncpg.Connection) -> None:
    for name in ("outbox_leader", "public.outbox_schema_version"):
        with pytest.raises(InvalidTableName, match="share"):
            await schema.create(connection, name)


async def test_a_table_of_somebody_elses_is_left_alone(connection: asyncpg.Connection) -> None:
    await connection.execute("CREATE TABLE public.orders_outbox (id int PRIMARY KEY)")
    for call in (schema.create, schema.upgrade, schema.require, schema.verify):
        with pytest.raises(SchemaMismatch) as raised:
            await call(connection, "orders_outbox")
        assert str(raised.value) == (
            "public.orders_outbox: it exists and is not an outbox table; choose another name"
        )
        assert raised.value.differences == ()
    assert (
        await connection.fetchval(
            "SELECT count(*) FROM pg_attribute WHERE attrelid = 'orders_outbox'::regclass AND attnum > 0"
        )
        == 1
    )


async def test_an_outbox_without_its_record_is_told_how_to_mend_it(connection: asyncpg.Connection) -> None:
    await schema.create(connection, "orders_outbox")
    await connection.execute("DELETE FROM public.outbox_schema_version")
    for call in (schema.create, schema.upgrade, schema.require):
        with pytest.raises(SchemaMismatch, match="no version recorded") as raised:
            await call(connection, "orders_outbox")
        assert "INSERT INTO" in str(raised.value)


@pytest.mark.parametrize(
    ("made", "owner"),
    [
        ("CREATE TABLE orders (id int); CREATE INDEX taken ON orders (id)", "an index"),
        ("CREATE SEQUENCE taken", "a sequence"),
        ("CREATE TYPE taken AS (id int)", "a composite type"),
    ],
)
async def test_a_name_that_belongs_to_something_else(
    connection: asyncpg.Connection, made: str, owner: str
) -> None:
    await connection.execute(made)
    for call in (schema.create, schema.upgrade):
        with pytest.raises(SchemaError) as raised:
            await call(connection, "taken")
        assert str(raised.value) == f"public.taken: the name belongs to {owner}; choose another"


async def test_a_table_dropped_by_hand_can_be_made_again(connection: asyncpg.Connection) -> None:
    await schema.create(connection, "orders_outbox")
    await connection.execute("DROP TABLE public.orders_outbox")
    assert await schema.create(connection, "orders_outbox")
    assert (await schema.verify(connection, "orders_outbox")).differences == ()


async def test_other_versions_are_named(connection: asyncpg.Connection) -> None:
    await schema.upgrade(connection, "orders_outbox", to=1)
    with pytest.raises(
        SchemaTooOld, match=r"`await outbox_core\.schema\.upgrade\(connection, 'public\.orders_outbox'\)`"
    ):
        await schema.create(connection, "orders_outbox")
    await connection.execute("UPDATE public.outbox_schema_version SET version = 99")
    for call in (schema.create, schema.upgrade, schema.require):
        with pytest.raises(SchemaTooNew, match="99"):
            await call(connection, "orders_outbox")


async def test_waiting_for_another_installer_is_bounded(
    database: Database, connection: asyncpg.Connection
) -> None:
    other = await asyncpg.connect(database.dsn)
    try:
        async with other.transaction():
            await schema.create(other, "first_outbox")
            with pytest.raises(SchemaBusy, match="another session"):
                await schema.create(connection, "second_outbox", wait=0.3)
            with pytest.raises(SchemaBusy, match="another session"):
                await schema.upgrade(connection, "second_outbox", wait=0.3)
        assert await schema.create(connection, "second_outbox", wait=0.3)
    finally:
        await other.close()


async def test_without_the_right_to_create(connection: asyncpg.Connection, unique_name: str) -> None:
    await connection.execute(
        f"CREATE ROLE {unique_name}; CREATE SCHEMA closed; GRANT USAGE ON SCHEMA closed TO {unique_name}"
    )
    try:
        await connection.execute(f"SET ROLE {unique_name}")
        for call in (schema.create, schema.upgrade):
            for table in ("closed.orders_outbox", "absent.orders_outbox"):
                with pytest.raises(PermissionDenied):
                    await call(connection, table)
    finally:
        await connection.execute(f"RESET ROLE; DROP OWNED BY {unique_name}; DROP ROLE {unique_name}")
