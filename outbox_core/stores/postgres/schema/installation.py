"""`create`, `upgrade` and `downgrade`: one installer at a time, and never in the way of enqueue for long."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import asyncpg

from outbox_core.errors import (
    InvalidTableName,
    PermissionDenied,
    SchemaError,
    SchemaNotEmpty,
    SchemaTooNew,
    SchemaTooOld,
)
from outbox_core.stores.postgres.catalog.expected import LEADER_TABLE, VERSION_TABLE
from outbox_core.stores.postgres.catalog.read import read_kind, read_version
from outbox_core.stores.postgres.schema.arguments import check_connection, check_seconds
from outbox_core.stores.postgres.schema.locking import (
    CALL_TIMEOUT,
    kept_settings,
    session_lock,
    take_transaction_lock,
    until_locks_are_had,
    write_timeouts,
)
from outbox_core.stores.postgres.schema.migration import (
    CURRENT_VERSION,
    LOCK_TIMEOUT,
    Migration,
    check_lock_timeout,
    check_version,
    create_sql,
    migrations,
    statements,
)
from outbox_core.stores.postgres.schema.verification import verify
from outbox_core.stores.postgres.sql import render
from outbox_core.table import TableName

if TYPE_CHECKING:
    from outbox_core.stores.postgres.catalog.read import Connection

WAIT: Final = 60.0
BUILD_TIMEOUT: Final = 3600.0

_NOT_TABLES: Final = {
    "i": "an index",
    "I": "an index",
    "S": "a sequence",
    "c": "a composite type",
    "t": "a TOAST table",
}
"""Other things that may have a name, by the catalog's letter."""


async def create(
    connection: Connection, table: str | TableName, *, lock_timeout: float = LOCK_TIMEOUT, wait: float = WAIT
) -> bool:
    """Create a table at the current version, with what its schema shares; True when this call made it.

    One transaction, or part of the caller's when one is open. Any number of sessions may call it at once: one creates,
    the others find the table there and return False. The PostgreSQL schema is created when it is absent, which needs
    CREATE on the database; an existing one needs only CREATE on the schema. Several tables in a schema share
    ``outbox_leader`` and ``outbox_schema_version``.

    Waits at most ``wait`` seconds for other installers (`SchemaBusy`). A table at an older version is left alone
    (`SchemaTooOld`), and so is one the library did not make (`SchemaMismatch`).
    """
    name = _parse(table)
    check_connection(name, connection)
    _check_waits(name, lock_timeout, wait)
    if connection.is_in_transaction():
        async with kept_settings(connection):
            return await _create(connection, name, lock_timeout, wait)
    async with connection.transaction(isolation="read_committed"):
        return await _create(connection, name, lock_timeout, wait)


async def upgrade(
    connection_or_dsn: Connection | str,
    table: str | TableName,
    *,
    to: int = CURRENT_VERSION,
    lock_timeout: float = LOCK_TIMEOUT,
    wait: float = WAIT,
    build_timeout: float = BUILD_TIMEOUT,
) -> tuple[Migration, ...]:
    """Apply the steps a table lacks, from any version up to ``to``, and return them; a missing table is made.

    Any number of starting processes may call it at once: one does the work, the others wait and find nothing to do.
    While it runs enqueue is never kept waiting longer than ``lock_timeout`` seconds: a step that does not get its lock
    ends, lets the queue behind it pass, and tries again for up to ``wait`` seconds (`SchemaBusy`). Indexes are
    built concurrently, for ``build_timeout`` seconds at most. What was applied stays applied when a later step fails.

    The connection must go to PostgreSQL itself, not through a transaction pooler, and have no transaction open.
    """
    name = _parse(table)
    check_version(name, to)
    _check_waits(name, lock_timeout, wait, build_timeout)
    async with _session(connection_or_dsn, name, wait) as connection:
        recorded = await _recorded(connection, name)
        if recorded > CURRENT_VERSION + 1:
            raise SchemaTooNew(name, recorded, CURRENT_VERSION + 1)
        missing = migrations()[recorded:to]
        for step in missing:
            text = step.up(name, lock_timeout=lock_timeout)
            await _apply(connection, name, step, text, wait=wait, build_timeout=build_timeout)
    return missing


async def downgrade(
    connection_or_dsn: Connection | str,
    table: str | TableName,
    *,
    to: int,
    drop_messages: bool = False,
    lock_timeout: float = LOCK_TIMEOUT,
    wait: float = WAIT,
    build_timeout: float = BUILD_TIMEOUT,
) -> tuple[Migration, ...]:
    """Undo the steps above version ``to``, newest first, and return them. Stop the relays first.

    Version 0 drops the table, and with a schema's last outbox the shared tables. A table that holds messages is not
    dropped (`SchemaNotEmpty`) unless ``drop_messages`` is set. Waits and refuses as `upgrade` does.
    """
    name = _parse(table)
    check_version(name, to)
    _check_waits(name, lock_timeout, wait, build_timeout)
    async with _session(connection_or_dsn, name, wait) as connection:
        recorded = await _recorded(connection, name)
        if recorded > CURRENT_VERSION:
            raise SchemaTooNew(name, recorded, CURRENT_VERSION)
        surplus = migrations()[to:recorded][::-1]
        for step in surplus:
            keep = step.version == 1 and not drop_messages
            text = step.down(name, lock_timeout=lock_timeout)
            await _apply(
                connection,
                name,
                step,
                text,
                wait=wait,
                build_timeout=build_timeout,
                empty_within=lock_timeout if keep else None,
            )
    return surplus


def _parse(table: str | TableName) -> TableName:
    name = TableName.parse(table)
    if name.name in {LEADER_TABLE, VERSION_TABLE}:
        raise InvalidTableName(table, "this name belongs to a table the schema's outboxes share")
    return name


def _check_waits(table: TableName, lock_timeout: float, wait: float, build_timeout: float = 1.0) -> None:
    check_lock_timeout(table, lock_timeout)
    check_seconds(table, "wait", wait)
    check_seconds(table, "build_timeout", build_timeout, at_least=0.001)


async def _create(connection: Connection, table: TableName, lock_timeout: float, wait: float) -> bool:
    await take_transaction_lock(connection, table, wait=wait)
    recorded = await _recorded(connection, table)
    if recorded > CURRENT_VERSION + 1:
        raise SchemaTooNew(table, recorded, CURRENT_VERSION + 1)
    if recorded >= CURRENT_VERSION:
        return False
    if recorded > 0:
        raise SchemaTooOld(table, recorded, CURRENT_VERSION)
    try:
        await connection.execute(create_sql(table, lock_timeout=lock_timeout), timeout=CALL_TIMEOUT)
    except asyncpg.InsufficientPrivilegeError as error:
        raise PermissionDenied(table, "create", part="migrator") from error
    return True


async def _recorded(connection: Connection, table: TableName) -> int:
    """The version to go on from. A record without its table counts for nothing; a table without one is not ours."""
    recorded = await read_version(connection, table)
    if recorded is None:
        raise PermissionDenied(table, "read the schema version of", part="migrator")
    kind = await read_kind(connection, table)
    if kind is None:
        return 0
    if kind in _NOT_TABLES:
        raise SchemaError(table, f"the name belongs to {_NOT_TABLES[kind]}; choose another")
    if recorded == 0:
        (await verify(connection, table)).raise_if_different()
    return recorded


@asynccontextmanager
async def _session(target: Connection | str, table: TableName, wait: float) -> AsyncGenerator[Connection]:
    """A session that alone may change the schema, its timeouts put back afterwards."""
    if isinstance(target, str):
        opened = await asyncpg.connect(target, timeout=CALL_TIMEOUT)
        try:
            async with _session(opened, table, wait) as connection:
                yield connection
        finally:
            with anyio.CancelScope(shield=True):
                await opened.close(timeout=CALL_TIMEOUT)
        return
    check_connection(table, target, or_dsn=True)
    if target.is_in_transaction():
        raise SchemaError(
            table, "indexes are built outside a transaction; pass a connection that has none open"
        )
    if target.get_server_pid() != await target.fetchval(
        "SELECT pg_catalog.pg_backend_pid()", timeout=CALL_TIMEOUT
    ):
        raise SchemaError(
            table,
            "this connection goes through a transaction pooler; change the schema on one straight to PostgreSQL",
        )
    async with session_lock(target, table, wait=wait), kept_settings(target):
        yield target


async def _apply(
    connection: Connection,
    table: TableName,
    step: Migration,
    text: str,
    *,
    wait: float,
    build_timeout: float,
    empty_within: float | None = None,
) -> None:
    async def in_a_transaction() -> None:
        async with connection.transaction():
            if empty_within is not None:
                await write_timeouts(connection, lock=empty_within, statement=build_timeout, local=True)
                await _refuse_messages(connection, table)
            await connection.execute(text, timeout=build_timeout)

    async def statement_by_statement() -> None:
        # The whole step is repeated, never one statement: its beginning clears away what a failed build left.
        await write_timeouts(connection, lock=0, statement=build_timeout, local=False)
        for statement in statements(text):
            await connection.execute(statement, timeout=build_timeout + CALL_TIMEOUT)

    attempt = in_a_transaction if step.transactional else statement_by_statement
    await until_locks_are_had(attempt, table, wait=wait)


async def _refuse_messages(connection: Connection, table: TableName) -> None:
    await connection.execute(render("ddl/lock_table.sql", table), timeout=CALL_TIMEOUT)
    if await connection.fetchval(render("ddl/holds_messages.sql", table), timeout=CALL_TIMEOUT):
        raise SchemaNotEmpty(table)
