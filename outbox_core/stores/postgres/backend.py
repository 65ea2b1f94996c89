"""PostgreSQL's backend: how relays, operators, doctor and the command line get at a database by its URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import asyncpg

from outbox_core.errors import ConfigError, StorageUnavailable
from outbox_core.stores.postgres import schema
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from outbox_core.stores.postgres.connecting import address, flaw, refusal
from outbox_core.stores.postgres.doctor.checks import PostgresChecks, open_checks
from outbox_core.stores.postgres.sessions import BROKEN, close, session_arguments, summary
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.stores.postgres.translation import translated

if TYPE_CHECKING:
    from asyncpg import Connection

    from outbox_core.schema_tools import SchemaTools
    from outbox_core.store_backend import StoreOptions
    from outbox_core.store_checks import CheckOptions
    from outbox_core.table import TableName

_SCHEMES: Final = ("postgresql://", "postgres://")
_MOST_SESSIONS: Final = 4
_CONNECT_SECONDS: Final = 10.0
_ADMIN_SECONDS: Final = 30.0
_OWNED: Final = {
    "command_timeout": "set database_timeout instead",
    "statement_cache_size": "leave it out, for a transaction pooler is detected, and it is 0 behind one",
    "timeout": "set database_timeout instead",
}
"""The arguments that ``connect`` cannot have because the store sets them, and what to do instead."""


class PostgresBackend:
    """`StoreBackend` of a ``postgresql://`` URL. ``connect`` is passed to ``asyncpg.connect``."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def schema(self) -> SchemaTools:
        return schema

    def flaw(self) -> str | None:
        return flaw(self._url)

    def store_factory(
        self, options: StoreOptions, connect: Mapping[str, Any] | None = None
    ) -> Callable[[], PostgresStore]:
        if not self._url.startswith(_SCHEMES):
            raise ConfigError("the database URL must be a str that begins with postgresql://")
        name = f"outbox:{options.tables[0]}"
        owned = sorted(_OWNED.keys() & session_arguments(connect, name).keys())
        if owned:
            raise ConfigError("; ".join(f"connect must not have {each}: {_OWNED[each]}" for each in owned))
        return lambda: PostgresStore(
            self._url,
            timeout=options.timeout,
            takeover=options.takeover,
            elections=options.elections,
            size=min(_MOST_SESSIONS, 2 + len(options.tables) // 2 + options.cleans),
            name=name,
            connect=connect,
        )

    def admin_store(
        self,
        *tables: str | TableName,
        timeout: float = _ADMIN_SECONDS,
        connect: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[PostgresAdminStore]:
        return PostgresAdminStore.connect(self._url, *tables, timeout=timeout, connect=connect)

    def checks(
        self, options: CheckOptions, connect: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[PostgresChecks]:
        return open_checks(self._url, options, connect)

    @asynccontextmanager
    async def session(self, *, name: str, timeout: float) -> AsyncGenerator[Connection]:
        wrong = flaw(self._url)
        if wrong is not None:
            raise ConfigError(f"the database URL cannot be used: {wrong}")
        try:
            connection = await asyncpg.connect(
                self._url,
                timeout=_CONNECT_SECONDS,
                command_timeout=timeout,
                server_settings={"application_name": name},
            )
        except (*BROKEN, ValueError, OverflowError) as error:
            refused = refusal(error, f" at {address(self._url, {})}")
            # The driver's text about a URL may quote a password.
            raise refused from (None if isinstance(refused, ConfigError) else error)
        try:
            yield connection
        finally:
            with anyio.CancelScope(shield=True):
                await close(connection)

    @contextmanager
    def translating(self, table: TableName, action: str) -> Generator[None]:
        try:
            yield
        except asyncpg.PostgresError as error:
            raise translated(error, table, action) from error
        except BROKEN as error:
            raise StorageUnavailable(f"the database connection was lost: {summary(error)}") from error
