"""Least privilege: each role can do its part of the work, and nothing of the others'."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import schema
from outbox_core.errors import ConfigError, SchemaMismatch
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

TABLE = "billing.orders_outbox"
ENQUEUE = """
    INSERT INTO billing.orders_outbox (tenant_id, topic, event_id, digest, payload)
    VALUES ('00000000-0000-0000-0000-000000000000', 'a.b.c.v1', '00000000-0000-0000-0000-000000000001',
        decode(repeat('00', 32), 'hex'), '1')
    ON CONFLICT (event_id) DO NOTHING RETURNING sequence
"""
CLAIM = """
    UPDATE billing.orders_outbox SET locked_at = now(), lock_token = gen_random_uuid(), attempts = attempts + 1
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM billing.orders_outbox WHERE published_at IS NULL FOR UPDATE SKIP LOCKED))
    RETURNING payload, body, headers
"""
STATE_CHANGES = (
    "published_at = now(), locked_at = NULL, lock_token = NULL, last_error = NULL",
    "published_at = NULL, dead_at = now(), last_error = 'x'",
    "dead_at = NULL, attempts = 0, available_at = now(), replays = replays + 1",
)
HIDDEN = {"payload", "body", "headers"}


@dataclass(frozen=True)
class Roles:
    migrator: str
    producer: str
    relay: str
    viewer: str
    operator: str


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def roles(connection: asyncpg.Connection, unique_name: str) -> AsyncIterator[Roles]:
    names = [f'{unique_name} "{part}"' for part in ("migrator", "producer", "relay", "viewer", "operator")]
    for name in names:
        await connection.execute(f"CREATE ROLE {quoted(name)}")
    await schema.create(connection, TABLE)
    roles = Roles(*names)
    await connection.execute(
        schema.roles(
            TABLE,
            migrator=roles.migrator,
            producer=roles.producer,
            relay=roles.relay,
            viewer=roles.viewer,
            operator=roles.operator,
        )
    )
    yield roles
    for name in names:
        await connection.execute(f"DROP OWNED BY {quoted(name)} CASCADE; DROP ROLE {quoted(name)}")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@asynccontextmanager
async def acting_as(connection: asyncpg.Connection, role: str) -> AsyncIterator[None]:
    await connection.execute(f"SET ROLE {quoted(role)}")
    try:
        yield
    finally:
        await connection.execute("RESET ROLE")


async def assert_refused(connection: asyncpg.Connection, *statements: str) -> None:
    for statement in statements:
        try:
            await connection.execute(statement)
        except asyncpg.InsufficientPrivilegeError:
            continue
        pytest.fail(f"this should not be allowed: {statement}")


async def columns(connection: asyncpg.Connection) -> set[str]:
    rows = await connection.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'billing.orders_outbox'::regclass AND attnum > 0"
    )
    return {row["attname"] for row in rows}


async def test_the_migrator_owns_and_changes_the_tables(connection: asyncpg.Connection, roles: Roles) -> None:
    async with acting_as(connection, roles.migrator):
        await schema.downgrade(connection, TABLE, to=0)
        await schema.upgrade(connection, TABLE)
        await schema.create(connection, "billing.other_outbox")
        assert (await schema.verify(connection, TABLE)).differences == ()


async def test_the_producer_enqueues_and_reads_next_to_nothing(
    connection: asyncpg.Connection, roles: Roles
) -> None:
    async with acting_as(connection, roles.producer):
        assert await connection.fetchval(ENQUEUE) == 1
        assert await connection.fetchval(ENQUEUE) is None
        read_back = (
            "SELECT sequence, topic, tenant_id, digest FROM billing.orders_outbox WHERE event_id IS NOT NULL"
        )
        assert [row["sequence"] for row in await connection.fetch(read_back)] == [1]
        for column in await columns(connection) - {"event_id", "sequence", "topic", "tenant_id", "digest"}:
            await assert_refused(connection, f"SELECT {column} FROM {TABLE}")  # noqa: S608
        await assert_refused(
            connection,
            "UPDATE billing.orders_outbox SET attempts = 0",
            "DELETE FROM billing.orders_outbox",
            "TRUNCATE billing.orders_outbox",
            "SELECT FROM billing.orders_outbox FOR UPDATE",
            "SELECT setval('billing.orders_outbox_sequence_seq', 1)",
            "TABLE billing.outbox_leader",
            "UPDATE billing.outbox_leader SET term = 0",
        )


async def test_the_relay_moves_messages_and_changes_none(
    connection: asyncpg.Connection, roles: Roles
) -> None:
    await connection.execute(ENQUEUE)
    async with acting_as(connection, roles.relay):
        assert await schema.require(connection, TABLE) == schema.CURRENT_VERSION
        await connection.execute(
            "UPDATE billing.outbox_leader SET holder = 'me', term = term + 1, heartbeat_at = now()"
        )
        assert await connection.fetchval("SELECT term FROM billing.outbox_leader FOR SHARE") == 1
        assert await connection.fetchval(CLAIM) == "1"
        for change in STATE_CHANGES:
            assert await connection.execute(f"UPDATE {TABLE} SET {change}") == "UPDATE 1"  # noqa: S608
        await assert_refused(
            connection,
            ENQUEUE,
            "TRUNCATE billing.orders_outbox",
            "INSERT INTO billing.outbox_leader (table_name) VALUES ('x')",
            "DELETE FROM billing.outbox_leader",
            "UPDATE billing.outbox_leader SET table_name = 'x'",
            "UPDATE billing.outbox_schema_version SET version = 1",
        )
        stateful = {
            name for change in STATE_CHANGES for name in await columns(connection) if f"{name} =" in change
        }
        for column in await columns(connection) - stateful:
            await assert_refused(connection, f"UPDATE {TABLE} SET {column} = {column}")  # noqa: S608
        assert await connection.execute("DELETE FROM billing.orders_outbox") == "DELETE 1"


async def test_the_viewer_sees_everything_but_content(connection: asyncpg.Connection, roles: Roles) -> None:
    await connection.execute(ENQUEUE)
    visible = ", ".join(sorted(await columns(connection) - HIDDEN))
    async with acting_as(connection, roles.viewer):
        assert len(await connection.fetch(f"SELECT {visible} FROM {TABLE}")) == 1  # noqa: S608
        assert await connection.fetchval("SELECT term FROM billing.outbox_leader") == 0
        for column in HIDDEN:
            await assert_refused(connection, f"SELECT {column} FROM {TABLE}")  # noqa: S608
        await assert_refused(
            connection,
            ENQUEUE,
            "UPDATE billing.orders_outbox SET attempts = 0",
            "DELETE FROM billing.orders_outbox",
            "UPDATE billing.outbox_leader SET term = 0",
            "SELECT FROM billing.orders_outbox FOR SHARE",
            "UPDATE billing.orders_outbox_audit SET changed = 0",
        )
        assert await connection.fetch("TABLE billing.orders_outbox_audit") == []


async def test_the_operator_acts_on_the_record_and_sees_no_content(
    connection: asyncpg.Connection, roles: Roles
) -> None:
    await connection.execute(ENQUEUE)
    visible = ", ".join(sorted(await columns(connection) - HIDDEN))
    async with acting_as(connection, roles.operator):
        assert len(await connection.fetch(f"SELECT {visible} FROM {TABLE}")) == 1  # noqa: S608
        assert await schema.require(connection, TABLE) == schema.CURRENT_VERSION
        await connection.execute(f"UPDATE {TABLE} SET {STATE_CHANGES[2]}")  # noqa: S608
        await connection.execute("""
            INSERT INTO billing.orders_outbox_audit (id, action, actor, reason, filter, as_of, planned)
            VALUES ('00000000-0000-0000-0000-000000000001', 'replay', 'me', 'x', '{}', now(), 1);
            UPDATE billing.orders_outbox_audit SET changed = 1, finished_at = now();
        """)
        for column in HIDDEN:
            await assert_refused(connection, f"SELECT {column} FROM {TABLE}")  # noqa: S608
        await assert_refused(
            connection,
            ENQUEUE,
            "UPDATE billing.orders_outbox SET topic = topic",
            "UPDATE billing.orders_outbox SET lock_token = NULL",
            "UPDATE billing.orders_outbox_audit SET actor = 'nobody'",
            "UPDATE billing.orders_outbox_audit SET reason = 'none'",
            "DELETE FROM billing.orders_outbox_audit",
            "TRUNCATE billing.orders_outbox_audit",
            "UPDATE billing.outbox_leader SET term = 0",
        )
        assert await connection.execute("DELETE FROM billing.orders_outbox") == "DELETE 1"


async def test_verify_works_for_every_role(connection: asyncpg.Connection, roles: Roles) -> None:
    for role in (roles.migrator, roles.relay, roles.viewer, roles.operator):
        async with acting_as(connection, role):
            assert (await schema.verify(connection, TABLE)).differences == ()
    stranger = roles.producer
    for change in ("", "REVOKE USAGE ON SCHEMA billing FROM "):
        if change:
            await connection.execute(change + quoted(stranger))
        async with acting_as(connection, stranger):
            report = await schema.verify(connection, TABLE)
            assert report.ok
            assert report.version is None
            assert {each.kind for each in report.warnings} == {"privilege"}
            assert await schema.require(connection, TABLE) == schema.CURRENT_VERSION


async def test_a_role_that_may_not_read_the_version_still_tells_a_foreign_table(
    connection: asyncpg.Connection, roles: Roles
) -> None:
    await connection.execute("CREATE TABLE billing.orders (id int PRIMARY KEY)")
    async with acting_as(connection, roles.producer):
        for call in (schema.require, schema.verify):
            with pytest.raises(SchemaMismatch, match="it exists and is not an outbox table"):
                await call(connection, "billing.orders")


async def test_only_the_parts_that_are_named(connection: asyncpg.Connection) -> None:
    script = schema.roles(TABLE, relay='o"brien')
    assert 'TO "o""brien"' in script
    assert "INSERT" not in script
    with pytest.raises(ConfigError, match="no role"):
        schema.roles(TABLE)
    for bad in ("", "x" * 64, "a\0b"):
        with pytest.raises(ConfigError, match="viewer"):
            schema.roles(TABLE, viewer=bad)
