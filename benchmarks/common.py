"""What the benchmarks share: where they run, how long, and what they load."""

from __future__ import annotations

import argparse
import asyncio
import shutil
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from benchmarks import figures, machine
from benchmarks.children import TABLE, event_loop
from benchmarks.figures import Section
from outbox_core import schema
from outbox_core.table import TableName
from tests.services.postgres import PostgresServer
from tests.services.session import Services

HERE = Path(__file__).parent
T = TypeVar("T")


class Mode(StrEnum):
    """How long a run is: each benchmark has its sizes for each."""

    SMOKE = "smoke"
    """Seconds: shows that the script works, and nothing else."""
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True)
class Place:
    """A database to measure in, and the pgbench that goes with it, if there is one."""

    dsn: str
    pgbench: str | None
    processes: Callable[[], list[int]] = list
    """The process ids of the server; none when it is somebody else's."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every benchmark takes."""
    parser.add_argument("--dsn", help="a PostgreSQL database; a server is started without it")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_const", dest="mode", const=Mode.QUICK, help="rougher figures")
    size.add_argument(
        "--smoke", action="store_const", dest="mode", const=Mode.SMOKE, help="seconds; no judgement"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.set_defaults(mode=Mode.FULL)


def main(description: str | None, run: Callable[[Place, Mode], Section]) -> int:
    """One benchmark by itself: its table on standard output, its JSON where asked for."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments(parser)
    given = parser.parse_args()
    with place(given.dsn) as where:
        found = run(where, given.mode)
        versions = machine.versions(where.dsn)
    if given.mode is Mode.SMOKE:
        found = found.unjudged()
    print(figures.report(found))
    if given.json is not None:
        figures.save(
            given.json,
            figures.content([found], mode=given.mode, machine=machine.description(), versions=versions),
        )
    return 0


@contextmanager
def place(dsn: str | None) -> Iterator[Place]:
    """The database of ``dsn``, or a durable PostgreSQL of the benchmark's own for as long as the block lasts."""
    if dsn is not None:
        yield Place(dsn, shutil.which("pgbench"))
        return
    services = Services()
    try:
        with services.private(PostgresServer) as server:
            program = server.installed_in / "bin" / "pgbench"
            yield Place(
                server.address,
                str(program) if program.exists() else shutil.which("pgbench"),
                lambda: [process.pid for process in server.processes],
            )
    finally:
        services.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on the fastest event loop there is."""
    with asyncio.Runner(loop_factory=event_loop()[0]) as runner:
        return runner.run(work)


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
    makes_uuid = "uuidv7" if connection.get_server_version().major >= 18 else "gen_random_uuid"
    statement = sql(script, table).replace("{uuid}", makes_uuid)
    await connection.execute(statement, rows, keys, due_in, timeout=1800)


async def load(connection: asyncpg.Connection, rows: int, **more: Any) -> None:
    """Add a backlog, then vacuum and checkpoint, so that every arm starts from the same state."""
    await insert(connection, rows, **more)
    await connection.execute(f"VACUUM (ANALYZE) {TABLE.quoted}", timeout=1800)
    await connection.execute("CHECKPOINT", timeout=600)


def sql(name: str, table: TableName = TABLE) -> str:
    """A statement of this folder, for the benchmarks' table or another one."""
    text = (HERE / name).read_text().replace("{table}", table.quoted)
    return text.replace("{schema}", f'"{table.schema}"').replace("{name}", table.name)
