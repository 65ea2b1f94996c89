"""The bounded waits of schema changes: for other installers, and for locks on the table."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import asyncpg

from outbox_core.errors import PermissionDenied, SchemaBusy
from outbox_core.stores.postgres.schema.migration import schema_lock

if TYPE_CHECKING:
    from outbox_core.stores.postgres.catalog.read import Connection
    from outbox_core.table import TableName

CALL_TIMEOUT: Final = 30.0
"""Seconds a single small statement may take."""

_POLL: Final = 0.1
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0

_TRY_SESSION: Final = "SELECT pg_catalog.pg_try_advisory_lock($1)"
_TRY_TRANSACTION: Final = "SELECT pg_catalog.pg_try_advisory_xact_lock($1)"
_UNLOCK: Final = "SELECT pg_catalog.pg_advisory_unlock($1)"
_READ_SETTINGS: Final = (
    "SELECT pg_catalog.current_setting('lock_timeout'), pg_catalog.current_setting('statement_timeout')"
)
_WRITE_SETTINGS: Final = (
    "SELECT pg_catalog.set_config('lock_timeout', $1, $3), pg_catalog.set_config('statement_timeout', $2, $3)"
)


async def take_transaction_lock(connection: Connection, table: TableName, *, wait: float) -> None:
    """Be the only installer in the table's schema until the open transaction ends, or raise `SchemaBusy`."""
    await _poll(connection, table, _TRY_TRANSACTION, wait)


@asynccontextmanager
async def session_lock(connection: Connection, table: TableName, *, wait: float) -> AsyncGenerator[None]:
    """Be the only installer in the table's schema, across transactions, or raise `SchemaBusy` after ``wait`` s."""
    await _poll(connection, table, _TRY_SESSION, wait)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            if not connection.is_closed():
                await connection.execute(_UNLOCK, schema_lock(table), timeout=CALL_TIMEOUT)


@asynccontextmanager
async def kept_settings(connection: Connection) -> AsyncGenerator[None]:
    """Put the session's timeouts back afterwards, inside a transaction of the caller's as outside."""
    nested = connection.is_in_transaction()
    before = await connection.fetchrow(_READ_SETTINGS, timeout=CALL_TIMEOUT)
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        # A failed transaction takes no statement, and its settings end with it.
        if before is not None and not connection.is_closed() and (succeeded or not nested):
            with anyio.CancelScope(shield=True):
                await connection.execute(_WRITE_SETTINGS, *before, nested, timeout=CALL_TIMEOUT)


async def write_timeouts(connection: Connection, *, lock: float, statement: float, local: bool) -> None:
    """Set the timeouts, in seconds, of the session or of its open transaction."""
    milliseconds = [str(round(seconds * 1000)) for seconds in (lock, statement)]
    await connection.execute(_WRITE_SETTINGS, *milliseconds, local, timeout=CALL_TIMEOUT)


async def until_locks_are_had(
    attempt: Callable[[], Awaitable[None]], table: TableName, *, wait: float
) -> None:
    """Repeat an attempt that ends at ``lock_timeout``, with pauses in which other sessions go on."""
    deadline = anyio.current_time() + wait
    pause = _FIRST_PAUSE
    while True:
        try:
            return await attempt()
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            if anyio.current_time() + pause > deadline:
                raise SchemaBusy(
                    table,
                    f"other transactions held the table and its lock was not had within {wait:g} s;"
                    " end long transactions (see pg_stat_activity) and run it again",
                ) from error
        except asyncpg.QueryCanceledError as error:
            raise SchemaBusy(
                table,
                "a step ran into its time limit and was stopped; run it again with a longer build_timeout",
            ) from error
        except asyncpg.InsufficientPrivilegeError as error:
            raise PermissionDenied(table, "create or change the schema of", part="migrator") from error
        await anyio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _poll(connection: Connection, table: TableName, statement: str, wait: float) -> None:
    # Never waited for inside PostgreSQL: a waiting statement holds a snapshot, and the concurrent index build of the
    # session it waits for would in turn wait for that snapshot.
    deadline = anyio.current_time() + wait
    while True:
        with anyio.CancelScope(shield=True):
            if await connection.fetchval(statement, schema_lock(table), timeout=CALL_TIMEOUT):
                return
        if anyio.current_time() + _POLL > deadline:
            raise SchemaBusy(
                table,
                f"another session has been installing or upgrading in the schema {table.schema!r} for {wait:g} s;"
                " run it again when that has ended",
            )
        await anyio.sleep(_POLL)
