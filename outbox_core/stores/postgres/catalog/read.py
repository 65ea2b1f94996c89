"""Reads the catalog: relations, the sequence, and the two records kept per table. Never writes, needs no privilege."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import asyncpg
from asyncpg.pool import PoolConnectionProxy

from outbox_core.stores.postgres.catalog.expected import LEADER_TABLE, VERSION_TABLE, Column
from outbox_core.stores.postgres.sql import render

if TYPE_CHECKING:
    from outbox_core.table import TableName

Connection: TypeAlias = asyncpg.Connection | PoolConnectionProxy

READ_TIMEOUT: Final = 30.0
"""Seconds any read of the catalog may take; they take milliseconds."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """``kind`` is the catalog's letter: c check, p primary key, u unique, x exclusion."""

    kind: str
    definition: str


@dataclass(frozen=True, slots=True)
class Index:
    """``columns`` are all the index names, those of its expressions and predicate included."""

    definition: str
    unique: bool
    valid: bool
    constraint: bool
    summarizing: bool
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation as it was found; ``kind`` and ``persistence`` are the catalog's letters (r table, u unlogged).

    ``rules`` has the command each rewrites, ``insert_triggers`` those that run before a row is inserted, ``children``
    the tables that inherit, as they stand in SQL. Disabled rules and triggers are left out.
    """

    kind: str
    persistence: str
    row_security: bool
    row_security_forced: bool
    columns: Mapping[str, Column]
    constraints: Mapping[str, Constraint]
    indexes: Mapping[str, Index]
    parameters: Mapping[str, str]
    rules: Mapping[str, str]
    insert_triggers: tuple[str, ...]
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A sequence as it was found; ``owner`` is ``schema.table.column``."""

    type: str
    increment: int
    cache: int
    cycle: bool
    maximum: int
    persistence: str
    owner: str | None


@asynccontextmanager
async def plain_search_path(connection: Connection) -> AsyncGenerator[None]:
    """A stretch in which names print qualified whatever the session's search_path; it leaves no trace.

    A transaction, or a savepoint in the caller's, that is always rolled back: for reading only.
    """
    nested = connection.is_in_transaction()
    await connection.execute("SAVEPOINT outbox_catalog" if nested else "BEGIN", timeout=READ_TIMEOUT)
    try:
        await connection.execute("SET LOCAL search_path = pg_catalog", timeout=READ_TIMEOUT)
        yield
    finally:
        undo = "ROLLBACK TO SAVEPOINT outbox_catalog; RELEASE SAVEPOINT outbox_catalog"
        with anyio.CancelScope(shield=True):
            if not connection.is_closed():
                await connection.execute(undo if nested else "ROLLBACK", timeout=READ_TIMEOUT)


async def read_relation(connection: Connection, table: TableName) -> Relation | None:
    """The relation of that name, or None. Definitions are as PostgreSQL prints them under `plain_search_path`."""
    facts = await _facts(connection, "catalog/relation.sql", table, table.name)
    if facts is None:
        return None
    return Relation(
        kind=facts["kind"],
        persistence=facts["persistence"],
        row_security=facts["row_security"],
        row_security_forced=facts["row_security_forced"],
        columns={name: Column(**column) for name, column in facts["columns"].items()},
        constraints={name: Constraint(**constraint) for name, constraint in facts["constraints"].items()},
        indexes={
            name: Index(**index | {"columns": frozenset[str](index["columns"])})
            for name, index in facts["indexes"].items()
        },
        parameters=facts["parameters"],
        rules=facts["rules"],
        insert_triggers=tuple(facts["insert_triggers"]),
        children=tuple(facts["children"]),
    )


async def read_sequence(connection: Connection, table: TableName, name: str) -> Sequence | None:
    """The sequence ``name`` in the table's schema, or None."""
    facts = await _facts(connection, "catalog/sequence.sql", table, name)
    return None if facts is None else Sequence(**facts)


async def relation_exists(connection: Connection, table: TableName) -> bool:
    """Whether a relation of that name exists, readable or not."""
    return await _readable(connection, table, table.name) is not None


async def read_kind(connection: Connection, table: TableName) -> str | None:
    """The catalog's letter for whatever has that name, an index or a sequence too; None when nothing has."""
    found: str | None = await connection.fetchval(
        render("catalog/kind.sql", table), table.schema, table.name, timeout=READ_TIMEOUT
    )
    return found


async def read_version(connection: Connection, table: TableName) -> int | None:
    """The recorded version: 0 when nothing is recorded, None when this role may not read the record."""
    readable = await _readable(connection, table, VERSION_TABLE)
    if not readable:
        return 0 if readable is None else None
    found: int | None = await connection.fetchval(
        render("catalog/version.sql", table), table.name, timeout=READ_TIMEOUT
    )
    return found or 0


async def has_leader_row(connection: Connection, table: TableName) -> bool | None:
    """Whether the leader table has the table's row; None when this role may not read it."""
    readable = await _readable(connection, table, LEADER_TABLE)
    if not readable:
        return False if readable is None else None
    found: bool = await connection.fetchval(
        render("catalog/leader.sql", table), table.name, timeout=READ_TIMEOUT
    )
    return found


async def _readable(connection: Connection, table: TableName, name: str) -> bool | None:
    found: bool | None = await connection.fetchval(
        render("catalog/readable.sql", table), table.schema, name, timeout=READ_TIMEOUT
    )
    return found


async def _facts(connection: Connection, path: str, table: TableName, name: str) -> dict[str, Any] | None:
    text: str | None = await connection.fetchval(
        render(path, table), table.schema, name, timeout=READ_TIMEOUT
    )
    if text is None:
        return None
    facts: dict[str, Any] = json.loads(text)
    return facts
