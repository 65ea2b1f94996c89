"""Checks the schema of tables before they are used, and says why when it cannot be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg

from outbox_core.errors import StorageTimeout, StorageUnavailable
from outbox_core.stores.postgres.sessions import BROKEN, close, is_sound_after, summary
from outbox_core.stores.postgres.translation import translated

if TYPE_CHECKING:
    from outbox_core.stores.postgres.sessions import Sessions
    from outbox_core.table import TableName


async def check_schema(
    sessions: Sessions,
    tables: Iterable[TableName],
    check: Callable[[asyncpg.Connection, TableName], Awaitable[object]],
) -> None:
    """Have each table checked, on a session for that alone. Raises what the check raises, and `StorageError` for what
    the driver does."""
    connection = await sessions.dedicated()
    try:
        for table in tables:
            with _translating(table, sessions.where):
                await check(connection, table)
    finally:
        await close(connection)


@contextmanager
def _translating(table: TableName, where: str) -> Generator[None]:
    try:
        yield
    except (TimeoutError, asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError) as error:
        raise StorageTimeout(
            f"the database{where} did not tell the schema of {table} in time: a migration, or somebody else, may hold"
            f" a lock on outbox_schema_version or outbox_leader; try again when that is over [{summary(error)}]"
        ) from error
    except BROKEN as error:
        if isinstance(error, asyncpg.PostgresError) and is_sound_after(error):
            raise translated(error, table, "look at", where) from error
        raise StorageUnavailable(
            f"the connection to the database{where} was lost while the schema of {table} was read; try again when the"
            f" server is back, and look into its log if it is not away [{summary(error)}]"
        ) from error
