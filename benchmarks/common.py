"""What the benchmarks share: where they run, how long, and what they load."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from benchmarks import environment
from benchmarks.children import TABLE, event_loop
from outbox_core import schema
from outbox_core.table import TableName
from tests.services.postgres import PostgresServer
from tests.services.session import Services

HERE = Path(__file__).parent
NO_PGBENCH = (
    f"there is no pgbench beside the server's programs, on the PATH or in {environment.PGBENCH}; install"
    " PostgreSQL's own programs (Debian: apt install postgresql), or name the program's file in that variable"
)
"""Why a figure is not measured."""
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A database to measure in, and the pgbench that goes with it, if there is one."""

    dsn: str
    pgbench: str | None
    """None when there is none: every figure that needs it is then told to be missing, and the run fails."""
    processes: Callable[[], list[int]] = list
    """The process ids of the server; none when it is somebody else's."""


@contextmanager
def place(dsn: str | None) -> Iterator[Place]:
    """The database of ``dsn``, or a durable PostgreSQL of the benchmark's own for as long as the block lasts."""
    if dsn is not None:
        yield Place(dsn, _pgbench())
        return
    services = Services()
    try:
        with services.private(PostgresServer) as server:
            beside = server.installed_in / "bin"
            yield Place(
                server.address, _pgbench(beside), lambda: [process.pid for process in server.processes]
            )
    finally:
        services.close()


def _pgbench(beside: Path | None = None) -> str | None:
    """The named one, the one beside the server's programs, or that of the PATH."""
    named = environment.pgbench()
    if named is not None:
        return named
    found = None if beside is None else shutil.which("pgbench", path=str(beside))
    return found or shutil.which("pgbench")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on the fastest event loop there is."""
    with asyncio.Runner(loop_factory=event_loop()[0]) as runner:
        return runner.run(interruptible(work))


async def interruptible(work: Coroutine[Any, Any, T]) -> T:
    """The work, of which an error while it is cancelled hides nothing: it would pass for a failure, and a run go on."""
    try:
        return await work
    except Exception as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        raise


async def install(connection: asyncpg.Connection, tables: tuple[TableName, ...] = (TABLE,)) -> None:
    """Empty outbox tables in a schema of the benchmarks' own, whatever was in it before."""
    await remove(connection)
    for table in tables:
        await schema.create(connection, table)


async def remove(connection: asyncpg.Connection) -> None:
    await connection.execute(f'DROP SCHEMA IF EXISTS "{TABLE.schema}" CASCADE')


async def empty(connection: asyncpg.Connection) -> None:
    await connection.execute(f"TRUNCATE {TABLE.quoted}", timeout=60)


async def insert(
    connection: asyncpg.Connection,
    rows: int,
    *,
    keys: int = 0,
    due_in: float = 0.0,
    script: str = "load.sql",
    table: TableName = TABLE,
) -> None:
    """Add messages, in one transaction."""
    statement = with_uuids(connection, sql(script, table))
    await connection.execute(statement, rows, keys, due_in, timeout=1800)


def with_uuids(connection: asyncpg.Connection, statement: str) -> str:
    """The statement with the best function for new UUIDs that this server has."""
    return statement.replace(
        "{uuid}", "uuidv7" if connection.get_server_version().major >= 18 else "gen_random_uuid"
    )


async def load(connection: asyncpg.Connection, rows: int, **more: Any) -> None:
    """Add a backlog, then settle."""
    await insert(connection, rows, **more)
    await settle(connection)


async def settle(connection: asyncpg.Connection) -> None:
    """Vacuum and checkpoint, so that every arm starts from the same state."""
    await connection.execute(f"VACUUM (ANALYZE) {TABLE.quoted}", timeout=1800)
    await connection.execute("CHECKPOINT", timeout=600)


@asynccontextmanager
async def database(place: Place, *tables: TableName) -> AsyncIterator[asyncpg.Connection]:
    """A connection, with empty outbox tables until the end of the block."""
    connection = await asyncpg.connect(place.dsn)
    try:
        await install(connection, tables or (TABLE,))
        yield connection
        await remove(connection)
    finally:
        await connection.close()


def sql(name: str, table: TableName = TABLE) -> str:
    """A statement of this folder, for the benchmarks' table or another one."""
    text = (HERE / name).read_text().replace("{table}", table.quoted)
    return text.replace("{schema}", f'"{table.schema}"').replace("{name}", table.name)
