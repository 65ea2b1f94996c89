"""The states of a table in which claims usually become slow. Each is set before a relay starts, on an empty table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import asyncpg

from benchmarks import common
from benchmarks.children import TABLE
from benchmarks.common import Place

BACKLOG = 10_000
"""Rows that are due, in every trap and on the clean table."""
KEYS = 1_000
"""Of the traffic, on both tables, in a trap that is about keys."""
BLOCKED = "order-0"
"""The key that a load in one key has."""


@dataclass(frozen=True)
class Depth:
    """How deep the traps are."""

    backlogs: Mapping[str, int]
    drained: int
    under_snapshot: int
    blocked: int
    not_due: int
    aged_seconds: float = 0.0
    """For how long a snapshot has been held, and what was drained has lain there, before anything is measured."""


Set = Callable[[asyncpg.Connection, Place, AsyncExitStack], Awaitable[None]]
"""Sets a trap; what must be undone, the stack undoes."""


@dataclass(frozen=True)
class Trap:
    """``bar`` is how many times the clean table's claim one may cost here."""

    text: str
    bar: float
    set: Set
    held: bool = False
    """Whether it has its own time to be measured for: an old snapshot is one only after a while."""
    keys: int = 0
    """Of the traffic, here and on the clean table."""


async def clean(connection: asyncpg.Connection, keys: int) -> None:
    await common.install(connection)
    await common.load(connection, BACKLOG, keys=keys)


async def _deep(rows: int, connection: asyncpg.Connection, *_: object) -> None:
    await common.load(connection, rows)


async def _drained(rows: int, connection: asyncpg.Connection, *_: object, keys: int = 0) -> None:
    """Published and not vacuumed, at the head of the queue; the backlog comes after them."""
    await connection.execute(f"ALTER TABLE {TABLE.quoted} SET (autovacuum_enabled = off)")
    await common.insert(connection, rows, keys=keys)
    await connection.execute(common.sql("publish_all.sql"), timeout=600)
    await common.insert(connection, BACKLOG, keys=keys)
    await connection.execute("CHECKPOINT", timeout=600)


async def _snapshot(
    rows: int,
    aged_seconds: float,
    keys: int,
    connection: asyncpg.Connection,
    place: Place,
    stack: AsyncExitStack,
) -> None:
    holder = await asyncpg.connect(place.dsn)
    stack.push_async_callback(holder.close)
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetchval("SELECT pg_current_snapshot()::text")
    await _drained(rows, connection, keys=keys)
    await asyncio.sleep(aged_seconds)


async def _blocked(rows: int, connection: asyncpg.Connection, *_: object) -> None:
    await common.insert(connection, rows, keys=1)
    await common.load(connection, BACKLOG)


async def _not_due(rows: int, connection: asyncpg.Connection, *_: object) -> None:
    await common.insert(connection, rows, due_in=3600.0)
    await common.load(connection, BACKLOG)


def traps(depth: Depth, held_seconds: float) -> dict[str, Trap]:
    """By the name that their figures have in the JSON."""
    held = depth.aged_seconds + held_seconds
    drained = f"{depth.under_snapshot:,} drained meanwhile"
    return {
        **{
            name: Trap(f"{rows:,} pending against {BACKLOG:,}", 1.5, partial(_deep, rows))
            for name, rows in depth.backlogs.items()
        },
        "drained": Trap(f"after {depth.drained:,} drained, no vacuum", 3.0, partial(_drained, depth.drained)),
        "snapshot": Trap(
            f"snapshot held for {held:g} s, {drained}",
            3.0,
            partial(_snapshot, depth.under_snapshot, depth.aged_seconds, 0),
            held=True,
        ),
        "snapshot_keys": Trap(
            f"snapshot held for {held_seconds:g} s, {drained}, {KEYS:,} keys",
            3.0,
            partial(_snapshot, depth.under_snapshot, 0.0, KEYS),
            held=True,
            keys=KEYS,
        ),
        "blocked": Trap(
            f"behind {depth.blocked:,} rows of one blocked key", 3.0, partial(_blocked, depth.blocked)
        ),
        "not_due": Trap(f"behind {depth.not_due:,} rows not yet due", 3.0, partial(_not_due, depth.not_due)),
    }
