"""Verifying: what would lose or change messages although every column is there, and what is the user's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import schema
from tests.integration.deviations import TABLE, assert_found_and_mended, rolled_back
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    await schema.create(connection, TABLE)
    yield connection
    await connection.close()


async def test_an_unlogged_table(connection: asyncpg.Connection) -> None:
    await assert_found_and_mended(connection, f"ALTER TABLE {TABLE} SET UNLOGGED", "table", TABLE)


async def test_an_unlogged_sequence(connection: asyncpg.Connection) -> None:
    sequence = "orders_outbox_sequence_seq"
    unlogged = f"ALTER SEQUENCE {sequence} SET UNLOGGED"
    if connection.get_server_version().major < 15:
        with pytest.raises(asyncpg.PostgresError):  # there is no such thing yet
            await connection.execute(unlogged)
        return
    await assert_found_and_mended(connection, unlogged, "sequence", sequence)
    await connection.execute(unlogged)
    (difference,) = (await schema.verify(connection, TABLE)).errors
    assert "an unlogged sequence: a crash of the server sets it back" in str(difference)


async def test_row_level_security(connection: asyncpg.Connection) -> None:
    enable = f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY"
    for deviation, shown in (
        (enable, "enabled"),
        (f"{enable}, FORCE ROW LEVEL SECURITY", "enabled and forced"),
    ):
        await assert_found_and_mended(connection, deviation, "table", TABLE)
        async with rolled_back(connection):
            await connection.execute(deviation)
            (difference,) = (await schema.verify(connection, TABLE)).errors
            assert f"found row level security {shown}: the relay would see no rows" in str(difference)
            assert 'ALTER TABLE "public"."orders_outbox" DISABLE ROW LEVEL SECURITY;' in difference.mend


@pytest.mark.parametrize("command", ["INSERT", "UPDATE", "DELETE"])
async def test_a_rule(connection: asyncpg.Connection, command: str) -> None:
    rule = f'CREATE RULE "My rule" AS ON {command} TO {TABLE} DO INSTEAD NOTHING'
    await assert_found_and_mended(connection, rule, "rule", "My rule")
    await connection.execute(rule)
    (difference,) = (await schema.verify(connection, TABLE)).errors
    assert f"rule My rule: expected no rule, found a rule ON {command}" in str(difference)
    assert difference.mend == 'DROP RULE "My rule" ON "public"."orders_outbox";'
    await connection.execute(f'ALTER TABLE {TABLE} DISABLE RULE "My rule"')
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_hazards_of_the_tables_beside_it_name_their_table(connection: asyncpg.Connection) -> None:
    rule = "CREATE RULE mine AS ON UPDATE TO public.outbox_leader DO INSTEAD NOTHING"
    await assert_found_and_mended(connection, rule, "rule", "outbox_leader.mine")


async def test_children_and_triggers_before_an_insert_are_warnings(connection: asyncpg.Connection) -> None:
    await connection.execute(f"""
        CREATE TABLE "Child" () INHERITS ({TABLE});
        CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER loses BEFORE INSERT OR UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION nothing();
        CREATE TRIGGER whole BEFORE INSERT ON {TABLE} FOR EACH STATEMENT EXECUTE FUNCTION nothing();
        CREATE TRIGGER later BEFORE UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION nothing();
        CREATE TRIGGER resting BEFORE INSERT ON {TABLE} FOR EACH ROW EXECUTE FUNCTION nothing();
        ALTER TABLE {TABLE} DISABLE TRIGGER resting;
    """)
    report = await schema.verify(connection, TABLE)
    assert report.ok
    child, trigger = map(str, report.warnings)
    assert f'table public."Child": expected no table that inherits from {TABLE}' in child
    assert "trigger loses: expected no row trigger BEFORE INSERT" in trigger
    assert "if it returns NULL, messages are lost" in trigger
    for difference in report.differences:
        await connection.execute(difference.mend)
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_a_view_in_the_tables_place(connection: asyncpg.Connection) -> None:
    await connection.execute(
        "ALTER TABLE orders_outbox RENAME TO hidden; CREATE VIEW orders_outbox AS TABLE hidden"
    )
    report = await schema.verify(connection, TABLE)
    assert ("an ordinary table", "a view") in {(each.expected, each.found) for each in report.errors}


async def test_a_required_column_of_the_users_own(connection: asyncpg.Connection) -> None:
    required = f"ALTER TABLE {TABLE} ADD COLUMN mine text NOT NULL"
    await assert_found_and_mended(connection, required, "column", "mine")


async def test_what_is_the_users_own_is_tolerated(connection: asyncpg.Connection) -> None:
    await connection.execute(f"""
        ALTER TABLE {TABLE} ADD COLUMN note text, ADD COLUMN tagged text NOT NULL DEFAULT 'x',
            ADD COLUMN counted int GENERATED ALWAYS AS IDENTITY NOT NULL,
            ADD COLUMN upper_topic text NOT NULL GENERATED ALWAYS AS (upper(topic)) STORED;
        ALTER TABLE {TABLE} SET (toast_tuple_target = 4080);
        CREATE INDEX mine ON {TABLE} (topic);
        CREATE TABLE tenants (id uuid PRIMARY KEY);
        ALTER TABLE {TABLE} ADD FOREIGN KEY (tenant_id) REFERENCES tenants;
        CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER mine AFTER INSERT ON {TABLE} FOR EACH ROW EXECUTE FUNCTION nothing();
    """)
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_what_may_get_in_the_way_is_a_warning(connection: asyncpg.Connection) -> None:
    await connection.execute(f"""
        CREATE INDEX by_lock ON {TABLE} (topic) WHERE locked_at IS NOT NULL;
        CREATE INDEX by_expression ON {TABLE} ((attempts + 1));
        CREATE INDEX including ON {TABLE} (topic) INCLUDE (lock_token);
        CREATE UNIQUE INDEX only_one ON {TABLE} (topic, tenant_id);
        ALTER TABLE {TABLE} ADD CONSTRAINT mine CHECK (topic <> 'x'), ADD CONSTRAINT two UNIQUE (id, topic);
    """)
    report = await schema.verify(connection, TABLE)
    assert report.ok
    report.raise_if_different()
    assert {each.name for each in report.warnings} == {
        "by_lock",
        "by_expression",
        "including",
        "only_one",
        "mine",
        "two",
    }
    assert "HOT" in str(report)
    for difference in report.differences:
        await connection.execute(difference.mend)
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_a_summarizing_index_does_not_end_hot_updates_since_16(connection: asyncpg.Connection) -> None:
    await connection.execute(f"CREATE INDEX summary ON {TABLE} USING brin (locked_at)")
    report = await schema.verify(connection, TABLE)
    assert bool(report.warnings) is (connection.get_server_version().major < 16)
