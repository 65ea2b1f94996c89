"""The database as commands reach it: every session named, every wait bounded, every error in the library's terms."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import asyncpg

from outbox_core.errors import ConfigError, StorageUnavailable
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from outbox_core.stores.postgres.connecting import address, flaw, refusal
from outbox_core.stores.postgres.sessions import BROKEN, close, summary
from outbox_core.stores.postgres.translation import translated

if TYPE_CHECKING:
    from asyncpg import Connection

    from outbox_core.table import TableName

T = TypeVar("T")

TIMEOUT: Final = 30.0
"""Seconds a statement may take."""
CONNECT_TIMEOUT: Final = 10.0


def run(work: Callable[[], Awaitable[T]], *, fast: bool = False) -> T:
    """Run the asynchronous part of a command; Ctrl-C cancels it. ``fast`` takes uvloop where it is installed."""
    return anyio.run(work, backend_options={"use_uvloop": fast and find_spec("uvloop") is not None})


@asynccontextmanager
async def connect(url: str, *, timeout: float = TIMEOUT) -> AsyncGenerator[Connection]:
    """One session for one command."""
    wrong = flaw(url)
    if wrong is not None:
        raise ConfigError(f"the database URL cannot be used: {wrong}")
    try:
        connection = await asyncpg.connect(
            url,
            timeout=CONNECT_TIMEOUT,
            command_timeout=timeout,
            server_settings={"application_name": "outbox:cli"},
        )
    except (*BROKEN, ValueError, OverflowError) as error:
        refused = refusal(error, f" at {address(url, {})}")
        # The driver's text about a URL may quote a password.
        raise refused from (None if isinstance(refused, ConfigError) else error)
    try:
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await close(connection)


@asynccontextmanager
async def admin_store(url: str, *tables: TableName) -> AsyncGenerator[PostgresAdminStore]:
    """The store's admin store, for cleaning, dead letters and figures; the tables' schema is checked first."""
    async with PostgresAdminStore.connect(url, *tables, timeout=TIMEOUT) as opened:
        yield opened


@contextmanager
def translating(table: TableName, action: str) -> Generator[None]:
    """What the driver raises inside, in the library's terms; ``action`` is a verb such as "enqueue"."""
    try:
        yield
    except asyncpg.PostgresError as error:
        raise translated(error, table, action) from error
    except BROKEN as error:
        raise StorageUnavailable(f"the database connection was lost: {summary(error)}") from error
