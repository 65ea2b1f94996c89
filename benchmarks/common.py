"""What the benchmarks share: where they run, what they load, and how figures are shown."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import asyncpg

from outbox_core import schema
from outbox_core.table import TableName
from tests.services.postgres import PostgresServer
from tests.services.session import Services

HERE = Path(__file__).parent
TABLE = TableName("outbox_benchmark", "orders_outbox")


@dataclass(frozen=True)
class Place:
    """A database to measure in, and the pgbench that goes with it, if there is one."""

    dsn: str
    pgbench: str | None


@dataclass(frozen=True)
class Figure:
    """One measured value with its spread over the repeats of one run, and the bar it is held against."""

    name: str
    text: str
    value: float
    lowest: float
    highest: float
    unit: str = "times"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def verdict(self) -> str:
        """Empty where there is no bar."""
        if self.at_least is None and self.at_most is None:
            return ""
        met = (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )
        return "met" if met else "**missed**"

    @property
    def bar(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"


def figure(name: str, text: str, values: Sequence[float], **more: Any) -> Figure:
    """The median of the repeats, with the lowest and the highest."""
    return Figure(name, text, statistics.median(values), min(values), max(values), **more)


def ratio(name: str, text: str, ours: Sequence[float], theirs: Sequence[float], **more: Any) -> Figure:
    """The median of the ratios of each round's two arms."""
    return figure(name, text, [one / other for one, other in zip(ours, theirs, strict=True)], **more)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def report(title: str, figures: Sequence[Figure], notes: Sequence[str] = ()) -> str:
    """A Markdown table of the figures, the notes under it."""
    lines = [f"| {title} | median | lowest to highest | bar | |", "|---|---|---|---|---|"]
    lines += [
        f"| {f.text} | {_shown(f.value)} {f.unit} | {_shown(f.lowest)} to {_shown(f.highest)} |"
        f" {f.bar} | {f.verdict} |"
        for f in figures
    ]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)])


def save(path: Path | None, figures: Sequence[Figure], **details: Any) -> None:
    """Write the figures as JSON: ``ratios`` maps each name to its median, ``figures`` has all there is."""
    if path is not None:
        content = {
            "ratios": {f.name: f.value for f in figures},
            "missed": [f.name for f in figures if f.verdict not in ("", "met")],
            "figures": [asdict(f) for f in figures],
            **details,
        }
        path.write_text(json.dumps(content, indent=2, default=str) + "\n")


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--dsn", help="a PostgreSQL database; a server is started without it")
    parser.add_argument("--quick", action="store_true", help="a minute or so, rougher figures")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


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
            yield Place(server.address, str(program) if program.exists() else shutil.which("pgbench"))
    finally:
        services.close()


def event_loop() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """How to make the fastest event loop there is, and its name."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop, "asyncio"
    return uvloop.new_event_loop, "uvloop"


async def install(connection: asyncpg.Connection) -> None:
    """An empty outbox table in a schema of the benchmarks' own, whatever was in it before."""
    await remove(connection)
    await schema.create(connection, TABLE)


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
) -> None:
    """Add messages, in one transaction."""
    makes_uuid = "uuidv7" if connection.get_server_version().major >= 18 else "gen_random_uuid"
    statement = sql(script).replace("{uuid}", makes_uuid)
    await connection.execute(statement, rows, keys, due_in, timeout=1800)


async def load(connection: asyncpg.Connection, rows: int, **more: Any) -> None:
    """Add a backlog, then vacuum and checkpoint, so that every arm starts from the same state."""
    await insert(connection, rows, **more)
    await connection.execute(f"VACUUM (ANALYZE) {TABLE.quoted}", timeout=1800)
    await connection.execute("CHECKPOINT", timeout=600)


def sql(name: str) -> str:
    """A statement of this folder, for the benchmarks' table."""
    text = (HERE / name).read_text().replace("{table}", TABLE.quoted)
    return text.replace("{schema}", f'"{TABLE.schema}"').replace("{name}", TABLE.name)


def _shown(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}"
