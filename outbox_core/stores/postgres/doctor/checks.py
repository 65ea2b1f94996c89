"""The list of PostgreSQL's checks, in their order, and the session they run on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import asyncpg

from outbox_core.errors import StorageError, StorageUnavailable
from outbox_core.store_checks import Check, Unreachable
from outbox_core.stores.postgres.connecting import address, obstacle
from outbox_core.stores.postgres.doctor import horizon, leader, schema, server, vacuum
from outbox_core.stores.postgres.doctor.case import Case, TableCase
from outbox_core.stores.postgres.sessions import BROKEN, close, summary
from outbox_core.stores.postgres.sql import render

if TYPE_CHECKING:
    from asyncpg import Connection

    from outbox_core.finding import Finding
    from outbox_core.store_checks import CheckOptions
    from outbox_core.table import TableName

T = TypeVar("T")


class PostgresChecks:
    """`StoreChecks` on one session."""

    def __init__(self, connection: Connection, options: CheckOptions) -> None:
        self._connection = connection
        self._options = options
        self._case = Case(connection, options)
        self._server: server.Server | None = None

    @property
    def server(self) -> Sequence[Check]:
        return [
            _check("connection", self._look_at_server),
            _check("horizon", partial(horizon.check_horizon, self._case)),
        ]

    def table(self, table: TableName) -> Sequence[Check]:
        case = TableCase(self._connection, self._options, table)
        return [
            _check("schema", partial(schema.check_schema, case), decisive=True),
            _check("privileges", partial(schema.check_privileges, case)),
            _check("autovacuum", lambda: vacuum.check_autovacuum(case, self._server)),
            _check("bloat", partial(vacuum.check_bloat, case)),
            _check("leader", partial(leader.check_leader, case)),
        ]

    async def topics(self, table: TableName) -> list[str]:
        statement = render("doctor/topics.sql", table)
        rows = await _translated(lambda: self._connection.fetch(statement))
        return [row["topic"] for row in rows]

    async def _look_at_server(self) -> list[Finding]:
        self._server = seen = await server.look_at_server(self._connection)
        limits = self._options.limits
        return [
            *server.check_connection(seen, limits),
            *server.check_version(seen),
            *server.check_pooler(seen),
            *server.check_clock(seen, limits),
            *server.check_monitoring(seen),
        ]


@asynccontextmanager
async def open_checks(
    url: str, options: CheckOptions, connect: Mapping[str, Any] | None
) -> AsyncGenerator[PostgresChecks]:
    """Open a session for the checks, which the server shows as ``outbox:doctor``; raises `Unreachable`."""
    arguments = dict(connect or {})
    named = {"application_name": "outbox:doctor", **arguments.pop("server_settings", {})}
    try:
        connection = await asyncpg.connect(
            url,
            timeout=options.timeout,
            command_timeout=options.timeout,
            server_settings=named,
            # A pooler may give every statement another session, which knows of no prepared ones.
            statement_cache_size=0,
            **arguments,
        )
    except (*BROKEN, ValueError, OverflowError) as error:
        found = obstacle(error)
        what = f"{found.what} [{found.name}]" if found.what else found.name
        remedy = found.remedy or "see that it is running and can be reached from this host"
        raise Unreachable(
            f"cannot connect to the database at {address(url, connect or {})}: {what}", remedy
        ) from None
    try:
        yield PostgresChecks(connection, options)
    finally:
        with anyio.CancelScope(shield=True):
            await close(connection)


def _check(name: str, run: Callable[[], Awaitable[list[Finding]]], *, decisive: bool = False) -> Check:
    return Check(name, partial(_translated, run), decisive)


async def _translated(run: Callable[[], Awaitable[T]]) -> T:
    """Run a check; the driver's errors become the library's, without the server's text, which may quote data."""
    try:
        return await run()
    except asyncpg.InsufficientPrivilegeError as error:
        raise StorageError("this role may not read what it needs") from error
    except TimeoutError:
        raise
    except BROKEN as error:
        raise StorageUnavailable(summary(error)) from error
