"""Verifying: every single deviation is found, what it prints mends it, and what is the user's own is tolerated."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import schema
from outbox_core.errors import SchemaMissing
from tests.integration.deviations import TABLE, assert_found_and_mended, rolled_back
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

OTHER_TYPE = {
    "uuid": "text",
    "text": "varchar(300)",
    "jsonb": "json",
    "bytea": "text USING encode({column}, 'escape')",
    "timestamp with time zone": "timestamp",
    "integer": "bigint",
    "bigint": "integer",
}

INVALIDATE = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'public.INDEX'::regclass"
OTHER_DEFAULT = {
    "uuid": "'00000000-0000-0000-0000-000000000000'",
    "text": "'x'",
    "jsonb": "'1'",
    "bytea": "'x'",
    "timestamp with time zone": "'now'",
    "integer": "1",
    "bigint": "1",
    "double precision": "1",
}


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    await schema.create(connection, TABLE)
    yield connection
    await connection.close()


async def columns_of(connection: asyncpg.Connection, table: str) -> list[asyncpg.Record]:
    return await connection.fetch(
        """
        SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS required,
               d.oid IS NOT NULL AS has_default
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = $1::text::regclass AND a.attnum > 0
        """,
        table,
    )


async def test_every_column(connection: asyncpg.Connection) -> None:
    columns = await columns_of(connection, TABLE)
    assert len(columns) == 22
    for column in columns:
        name, alter = column["name"], f'ALTER TABLE {TABLE} ALTER COLUMN "{column["name"]}"'
        drop_default = f"{alter} DROP DEFAULT;"
        unkeyed = (
            "ALTER TABLE public.orders_outbox DROP CONSTRAINT orders_outbox_pkey;" if name == "id" else ""
        )
        other_type = OTHER_TYPE[column["type"]].format(column=name)
        deviations = [
            f'ALTER TABLE {TABLE} DROP COLUMN "{name}" CASCADE',
            f'ALTER TABLE {TABLE} RENAME COLUMN "{name}" TO renamed; ALTER TABLE {TABLE} DROP COLUMN renamed CASCADE',
            f"{drop_default} {alter} TYPE {other_type}",
            f"{unkeyed} {alter} DROP NOT NULL" if column["required"] else f"{alter} SET NOT NULL",
            drop_default if column["has_default"] else f"{alter} SET DEFAULT {OTHER_DEFAULT[column['type']]}",
        ]
        if column["required"] and name != "id" and connection.get_server_version().major >= 18:
            unchecked = f'ALTER TABLE {TABLE} ADD CONSTRAINT unchecked NOT NULL "{name}" NOT VALID'
            deviations.append(f"{alter} DROP NOT NULL; {unchecked}")
        if column["type"] == "text":
            deviations.append(f'{alter} TYPE text COLLATE "C"')
        if column["has_default"] and name != "sequence":
            deviations.append(f"{alter} SET DEFAULT {OTHER_DEFAULT[column['type']]}")
        for deviation in deviations:
            await assert_found_and_mended(connection, deviation, "column", name)


async def test_every_constraint(connection: asyncpg.Connection) -> None:
    constraints = await connection.fetch(
        """
        SELECT conname AS name, contype::text AS kind, pg_get_constraintdef(oid) AS definition FROM pg_constraint
        WHERE conrelid = $1::text::regclass AND contype <> 'n'
        """,
        TABLE,
    )
    assert len(constraints) == 8
    for constraint in constraints:
        name, drop = constraint["name"], f"ALTER TABLE {TABLE} DROP CONSTRAINT {constraint['name']};"
        add = f"ALTER TABLE {TABLE} ADD CONSTRAINT {name}"
        deviations = [drop, f"ALTER TABLE {TABLE} RENAME CONSTRAINT {name} TO {name}_x"]
        if constraint["kind"] == "c":
            kind = "check"
            deviations += [
                f"{drop} {add} CHECK (true)",
                f"{drop} {add} {constraint['definition']} NO INHERIT",
                f"{drop} {add} {constraint['definition']} NOT VALID",
            ]
            if connection.get_server_version().major >= 18:
                deviations.append(f"{drop} {add} {constraint['definition']} NOT ENFORCED")
        else:
            kind = "key"
            deviations += [
                f"{drop} {add} UNIQUE (topic)",
                f"{drop} {add} {constraint['definition']} DEFERRABLE",
            ]
        for deviation in deviations:
            await assert_found_and_mended(connection, deviation, kind, name)


async def test_every_index(connection: asyncpg.Connection) -> None:
    indexes = await connection.fetch(
        """
        SELECT i.relname AS name, pg_get_indexdef(i.oid) AS definition, pg_get_expr(x.indpred, x.indrelid) AS predicate
        FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
        WHERE x.indrelid = $1::text::regclass AND NOT x.indisunique
        """,
        TABLE,
    )
    assert len(indexes) == 6
    for index in indexes:
        name, definition, predicate = index["name"], index["definition"], index["predicate"]
        drop = f"DROP INDEX public.{name};"
        deviations = [
            drop,
            f"ALTER INDEX public.{name} RENAME TO renamed",
            f"{drop} {definition.replace(f' WHERE {predicate}', '')}",
            f"{drop} {definition.replace(predicate, 'attempts = 0')}",
            f"{drop} {definition.replace('sequence)', 'sequence DESC)')}",
            f"{drop} {definition.replace(', sequence)', ')')}",
            f"{drop} {definition.replace('sequence)', 'sequence) INCLUDE (topic)')}",
            f"{drop} {definition.replace('CREATE INDEX', 'CREATE UNIQUE INDEX')}",
            INVALIDATE.replace("INDEX", name),
        ]
        for deviation in deviations:
            await assert_found_and_mended(connection, deviation, "index", name)


async def test_every_parameter(connection: asyncpg.Connection) -> None:
    options = await connection.fetchval(
        "SELECT reloptions FROM pg_class WHERE oid = $1::text::regclass", TABLE
    )
    assert len(options) == 4
    for option in options:
        name = option.split("=")[0]
        for deviation in (f"RESET ({name})", f"SET ({name} = 33)"):
            await assert_found_and_mended(connection, f"ALTER TABLE {TABLE} {deviation}", "parameter", name)
    off = f"ALTER TABLE {TABLE} SET (autovacuum_enabled = off)"
    await assert_found_and_mended(connection, off, "parameter", "autovacuum_enabled")
    async with rolled_back(connection):
        await connection.execute(
            f"ALTER TABLE {TABLE} SET (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.020)"
        )
        assert (await schema.verify(connection, TABLE)).differences == ()


async def test_the_sequence(connection: asyncpg.Connection) -> None:
    sequence = "orders_outbox_sequence_seq"
    for deviation in (
        f"ALTER SEQUENCE {sequence} OWNED BY NONE",
        f"ALTER SEQUENCE {sequence} CACHE 20",
        f"ALTER SEQUENCE {sequence} INCREMENT BY -1",
        f"ALTER SEQUENCE {sequence} CYCLE",
        f"ALTER SEQUENCE {sequence} AS integer",
        f"DROP SEQUENCE {sequence} CASCADE",
        f"ALTER SEQUENCE {sequence} RENAME TO renamed",
    ):
        await assert_found_and_mended(connection, deviation, "sequence", sequence)


async def test_a_mended_sequence_goes_on_where_the_rows_end(connection: asyncpg.Connection) -> None:
    insert = """
        INSERT INTO public.orders_outbox (tenant_id, topic, event_id, digest, payload)
        SELECT gen_random_uuid(), 'a.b.c.v1', gen_random_uuid(), decode(repeat('00', 32), 'hex'), '1'
        FROM generate_series(1, 5)
    """
    await connection.execute(insert)
    await connection.execute("DROP SEQUENCE orders_outbox_sequence_seq CASCADE")
    for difference in (await schema.verify(connection, TABLE)).differences:
        await connection.execute(difference.mend)
    await connection.execute(insert)
    assert await connection.fetchval("SELECT array_agg(sequence ORDER BY sequence) FROM orders_outbox") == [
        *range(1, 11)
    ]


async def test_the_tables_beside_it_and_their_rows(connection: asyncpg.Connection) -> None:
    for table in ("orders_outbox_audit", "outbox_leader", "outbox_schema_version"):
        for column in await columns_of(connection, f"public.{table}"):
            alter = f"ALTER TABLE public.{table} ALTER COLUMN {column['name']}"
            drop = f"ALTER TABLE public.{table} DROP COLUMN {column['name']}"
            if column["name"] not in {"table_name", "version"}:
                await assert_found_and_mended(connection, drop, "column", f"{table}.{column['name']}")
            changed = (
                "DROP DEFAULT" if column["has_default"] else f"SET DEFAULT {OTHER_DEFAULT[column['type']]}"
            )
            await assert_found_and_mended(
                connection, f"{alter} {changed}", "column", f"{table}.{column['name']}"
            )
        unkeyed = f"ALTER TABLE public.{table} DROP CONSTRAINT {table}_pkey"
        await assert_found_and_mended(connection, unkeyed, "key", f"{table}_pkey")
        await assert_found_and_mended(connection, f"DROP TABLE public.{table}", "table", f"public.{table}")
    reset = "ALTER TABLE public.outbox_leader RESET (fillfactor)"
    await assert_found_and_mended(connection, reset, "parameter", "outbox_leader.fillfactor")
    await assert_found_and_mended(connection, "DELETE FROM public.outbox_leader", "leader", "orders_outbox")
    await assert_found_and_mended(connection, "DELETE FROM public.outbox_schema_version", "version", TABLE)


async def test_index_mends_run_as_printed_on_a_table_in_use(connection: asyncpg.Connection) -> None:
    await connection.execute("""
        DROP INDEX orders_outbox_pending;
        UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'orders_outbox_dead'::regclass;
    """)
    for difference in (await schema.verify(connection, TABLE)).differences:
        for statement in difference.mend.splitlines():
            await connection.execute(statement)
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_a_missing_table_names_the_way_to_create_it(connection: asyncpg.Connection) -> None:
    for call in (schema.verify, schema.require):
        with pytest.raises(SchemaMissing) as caught:
            await call(connection, "nowhere.orders_outbox")
        assert "await outbox_core.schema.create(connection, 'nowhere.orders_outbox')" in str(caught.value)
        assert caught.value.code == "STORAGE.SCHEMA_MISSING"


async def test_versions_around_the_current_one(connection: asyncpg.Connection) -> None:
    set_version = "UPDATE outbox_schema_version SET version = $1"
    assert await schema.require(connection, TABLE) == schema.CURRENT_VERSION
    await connection.execute(set_version, schema.CURRENT_VERSION - 1)
    (difference,) = (await schema.verify(connection, TABLE)).errors
    assert difference.mend == (
        f"-- outbox schema upgrade --table {TABLE}\n"
        f"-- or in Python: await outbox_core.schema.upgrade(connection, {TABLE!r})"
    )

    await connection.execute(set_version, schema.CURRENT_VERSION + 1)
    await connection.execute(f"ALTER TABLE {TABLE} SET (fillfactor = 50); DROP INDEX orders_outbox_tenant")
    report = await schema.verify(connection, TABLE)
    assert report.ok
    assert {each.kind for each in report.warnings} == {"parameter", "index"}
    assert await schema.require(connection, TABLE) == schema.CURRENT_VERSION + 1
    async with rolled_back(connection):
        await connection.execute(f"ALTER TABLE {TABLE} DROP COLUMN headers")
        assert not (await schema.verify(connection, TABLE)).ok

    await connection.execute(set_version, schema.CURRENT_VERSION + 2)
    assert "version" in {each.kind for each in (await schema.verify(connection, TABLE)).errors}


async def test_writes_nothing_and_leaves_the_transaction_as_it_was(connection: asyncpg.Connection) -> None:
    await connection.execute("SET search_path = public")
    async with connection.transaction(readonly=True, isolation="repeatable_read"):
        assert (await schema.verify(connection, TABLE)).ok
        assert await connection.fetchval("SHOW search_path") == "public"
        assert await connection.fetchval("SELECT pg_current_xact_id_if_assigned()") is None
    await connection.execute("BEGIN")
    assert (await schema.verify(connection, TABLE)).ok
    assert connection.is_in_transaction()
    await connection.execute("COMMIT")


async def test_custom_codecs_of_the_connection_do_not_matter(connection: asyncpg.Connection) -> None:
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=str, decoder=lambda _: "decoded")
    assert (await schema.verify(connection, TABLE)).differences == ()
