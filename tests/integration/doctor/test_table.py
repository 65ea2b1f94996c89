"""The table: each condition made, found, mended by what the finding says, and gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest

from outbox_core import Message, Outbox, Relay, schema
from outbox_core.config import Settings
from outbox_core.doctor import Limits, Severity
from outbox_core.relay.settings import RelaySettings
from tests.integration.doctor.ward import TABLE, Ward
from tests.kit.gates import ignore
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until

pytestmark = [pytest.mark.store, pytest.mark.asyncio]


async def test_a_table_that_is_not_there(ward: Ward) -> None:
    finding = await ward.only("schema", tables=["shop.missing_outbox"])
    assert (finding.severity, finding.run) == (
        Severity.ERROR,
        ("outbox schema create --table shop.missing_outbox",),
    )
    assert finding.table is not None
    assert str(finding.table) == "shop.missing_outbox"


async def test_a_schema_that_is_old(ward: Ward) -> None:
    await schema.upgrade(ward.connection, "shop.old_outbox", to=2)
    finding = await ward.only("schema", tables=["shop.old_outbox"])
    assert finding.run == ("outbox schema upgrade --table shop.old_outbox",)
    await schema.upgrade(ward.connection, "shop.old_outbox")
    assert await ward.findings("schema", tables=["shop.old_outbox"]) == []


async def test_a_column_that_differs(ward: Ward) -> None:
    await ward.connection.execute(f"ALTER TABLE {TABLE} ALTER attempts DROP DEFAULT")
    finding = await ward.only("schema")
    assert finding.severity is Severity.ERROR
    await ward.connection.execute(finding.run[0])
    assert await ward.findings("schema") == []


async def test_an_index_that_is_missing(ward: Ward) -> None:
    await ward.connection.execute("DROP INDEX shop.orders_outbox_pending")
    finding = await ward.only("indexes")
    assert (finding.severity, "orders_outbox_pending" in finding.title) == (Severity.ERROR, True)
    await ward.connection.execute(finding.run[0])
    assert await ward.findings("indexes") == []


async def test_an_index_that_is_invalid(ward: Ward) -> None:
    await ward.connection.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'shop.orders_outbox_dead'::regclass"
    )
    finding = await ward.only("indexes")
    assert "invalid" in finding.title
    for statement in finding.run[0].split(";\n"):
        await ward.connection.execute(statement)
    assert await ward.findings("indexes") == []


async def test_a_role_that_may_not_relay(ward: Ward, unique_name: str) -> None:
    await ward.connection.execute(f"CREATE ROLE {unique_name}")
    await ward.connection.execute(schema.roles(TABLE, viewer=unique_name))
    settings = {"server_settings": {"role": unique_name}}
    try:
        finding = await ward.only("privileges", connect=settings)
        assert (finding.severity, finding.title) == (
            Severity.WARNING,
            f"the role {unique_name} may not relay; it may only view",
        )
        await ward.connection.execute(finding.run[0])
        assert await ward.findings("privileges", connect=settings) == []
    finally:
        await ward.connection.execute(f"DROP OWNED BY {unique_name}; DROP ROLE {unique_name}")


async def test_a_role_that_may_do_nothing(ward: Ward, unique_name: str) -> None:
    await ward.connection.execute(f"CREATE ROLE {unique_name}")
    await ward.connection.execute(schema.roles(TABLE, viewer=unique_name))
    await ward.connection.execute(f"REVOKE SELECT ON {TABLE} FROM {unique_name}")  # noqa: S608
    await ward.connection.execute(
        f"REVOKE SELECT (last_error) ON {TABLE} FROM {unique_name}"  # noqa: S608
    )
    try:
        finding = await ward.only("privileges", connect={"server_settings": {"role": unique_name}})
        assert (finding.severity, finding.title) == (
            Severity.ERROR,
            f"the role {unique_name} may do nothing with this table",
        )
    finally:
        await ward.connection.execute(f"DROP OWNED BY {unique_name}; DROP ROLE {unique_name}")


async def test_autovacuum_that_is_off(ward: Ward) -> None:
    await ward.connection.execute(f"ALTER TABLE {TABLE} SET (autovacuum_enabled = false)")
    finding = await ward.only("autovacuum")
    assert finding.severity is Severity.ERROR
    await ward.connection.execute(finding.run[0])
    assert await ward.findings("autovacuum") == []


async def test_a_table_that_was_not_frozen_for_long(ward: Ward) -> None:
    for _ in range(3):
        await ward.connection.execute("SELECT pg_current_xact_id()")
    limits = Limits(wraparound=1)
    finding = await ward.only("autovacuum", limits=limits)
    assert "last frozen" in finding.title
    assert await ward.findings("autovacuum") == []


async def test_row_versions_that_wait_for_a_vacuum(ward: Ward) -> None:
    await ward.connection.execute(f"ALTER TABLE {TABLE} SET (autovacuum_enabled = false)")
    await fill(ward, 3000)
    await ward.connection.execute("DELETE FROM shop.orders_outbox")
    limits = Limits(dead_rows=1000)

    async def found() -> bool:
        # PostgreSQL 14 tells what a session did when that session does something more.
        await ward.connection.execute("SELECT 1")
        return bool(await ward.findings("bloat", limits=limits))

    await until(found)
    finding = await ward.only("bloat", limits=limits)
    assert "dead row versions" in finding.title
    await ward.connection.execute(finding.run[0])

    async def gone() -> bool:
        await ward.connection.execute("SELECT 1")
        return not await ward.findings("bloat", limits=limits)

    await until(gone)


async def test_an_index_that_is_bloated(ward: Ward) -> None:
    await ward.connection.execute(f"ALTER TABLE {TABLE} SET (autovacuum_enabled = false)")
    await fill(ward, 3000)
    await ward.connection.execute("DELETE FROM shop.orders_outbox")
    await ward.connection.execute(f"VACUUM ANALYZE {TABLE}")
    limits = Limits(index_bytes=65536, index_growth=1.0)
    findings = await ward.findings("bloat", limits=limits)
    assert findings
    assert all(finding.title.startswith("the index orders_outbox") for finding in findings)
    for finding in findings:
        await ward.connection.execute(finding.run[0])
    assert await ward.findings("bloat", limits=limits) == []


async def fill(ward: Ward, count: int) -> None:
    outbox = Outbox(TABLE, hint=False)
    messages = [Message("shop.order.placed.v1", number, key=f"key-{number}") for number in range(count)]
    async with ward.connection.transaction():
        await outbox.enqueue_many(ward.connection, messages)


@asynccontextmanager
async def session(ward: Ward) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(ward.dsn, server_settings={"application_name": "reporting"})
    try:
        yield connection
    finally:
        connection.terminate()


async def test_a_session_idle_in_a_transaction(ward: Ward) -> None:
    async with session(ward) as other:
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM shop.orders_outbox")
        finding = await ward.only("horizon", limits=Limits(transaction_age=0))
        assert (finding.severity, "idle in transaction" in finding.title) == (Severity.WARNING, True)
        assert "reporting" in finding.title
        assert await ward.findings("horizon", limits=Limits(transaction_age=600)) == []
        assert await ward.connection.fetchval(finding.run[0]) is True

        async def gone() -> bool:
            return not await ward.findings("horizon", limits=Limits(transaction_age=0))

        await until(gone)


async def test_a_statement_that_takes_long(ward: Ward) -> None:
    async with session(ward) as other, sleeping(other):

        async def found() -> bool:
            return bool(await ward.findings("horizon", limits=Limits(transaction_age=0.1)))

        await until(found)
        finding = await ward.only("horizon", limits=Limits(transaction_age=0.1))
        assert "in one transaction" in finding.title
        assert str(other.get_server_pid()) in finding.run[0]


@asynccontextmanager
async def sleeping(connection: asyncpg.Connection) -> AsyncIterator[None]:
    statement = asyncio.create_task(
        connection.execute("SELECT count(*), pg_sleep(60) FROM shop.orders_outbox")
    )
    try:
        yield
    finally:
        statement.cancel()
        await asyncio.gather(statement, return_exceptions=True)


async def test_a_prepared_transaction(ward: Ward) -> None:
    name = f"it's {uuid4()}"
    literal = name.replace("'", "''")
    await ward.connection.execute("BEGIN; SELECT pg_current_xact_id()")
    await ward.connection.execute(f"PREPARE TRANSACTION '{literal}'")
    finding = await ward.only("horizon", limits=Limits(transaction_age=0))
    assert "prepared transaction" in finding.title
    await ward.connection.execute(finding.run[0])
    assert await ward.findings("horizon", limits=Limits(transaction_age=0)) == []


async def test_a_slot_that_nobody_reads(ward: Ward, unique_name: str) -> None:
    await ward.connection.execute("SELECT pg_create_physical_replication_slot($1, true)", unique_name)
    try:
        finding = await ward.only("horizon")
        assert (finding.severity, unique_name in finding.title) == (Severity.WARNING, True)
        await ward.connection.execute(finding.run[0])
        assert await ward.findings("horizon") == []
    finally:
        await ward.connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1",
            unique_name,
        )


async def test_nobody_leads_and_messages_wait(ward: Ward) -> None:
    assert (await ward.only("leader")).severity is Severity.WARNING
    await fill(ward, 3)
    await ward.connection.execute("UPDATE shop.orders_outbox SET available_at = now() - interval '5 minutes'")
    finding = await ward.only("leader")
    assert (finding.severity, "3 messages have been due" in finding.title) == (Severity.ERROR, True)
    shared = Settings(relay=RelaySettings(single_active=False))
    assert [each.severity for each in await ward.findings("leader", settings=shared)] == [Severity.NOTE]
    async with Relay(ward.dsn, table=TABLE, dispatcher=ignore, **QUICK_POSTGRES):

        async def led() -> bool:
            return not await ward.findings("leader")

        await until(led)


async def test_a_leader_that_has_fallen_silent(ward: Ward) -> None:
    async with Relay(ward.dsn, table=TABLE, dispatcher=ignore, **QUICK_POSTGRES):

        async def led() -> bool:
            return not await ward.findings("leader")

        await until(led)
    await ward.connection.execute(
        "UPDATE shop.outbox_leader SET holder = 'gone:1', heartbeat_at = now() - interval '1 minute'"
    )
    finding = await ward.only("leader")
    assert "gone:1" in finding.title
    assert "last heard of" in finding.title


async def test_a_leader_that_is_behind(ward: Ward) -> None:
    await fill(ward, 2)
    await ward.connection.execute("UPDATE shop.orders_outbox SET available_at = now() - interval '5 minutes'")
    await ward.connection.execute("UPDATE shop.outbox_leader SET holder = 'here:1', heartbeat_at = now()")
    finding = await ward.only("leader")
    assert (finding.severity, "here:1 leads" in finding.title) == (Severity.WARNING, True)
    await ward.connection.execute("DELETE FROM shop.outbox_leader")
    assert (await ward.only("leader")).severity is Severity.ERROR
