"""`verify`: compares a table with what the library needs; each difference comes with its fix."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from outbox_core.errors import SchemaMismatch, SchemaMissing, SchemaTooNew, SchemaTooOld
from outbox_core.schema_tools import Difference, Kind, Report
from outbox_core.stores.postgres.catalog.expected import (
    AUDIT,
    LEADER,
    LEADER_TABLE,
    OUTBOX,
    SEQUENCE_SUFFIX,
    VERSION,
    VERSION_TABLE,
    AuditName,
    Shape,
)
from outbox_core.stores.postgres.catalog.read import (
    has_leader_row,
    plain_search_path,
    read_relation,
    read_sequence,
    read_version,
    relation_exists,
)
from outbox_core.stores.postgres.schema.arguments import check_connection
from outbox_core.stores.postgres.schema.compare import compare_relation, compare_sequence
from outbox_core.stores.postgres.schema.fixes import fix, table_definition
from outbox_core.stores.postgres.schema.migration import CURRENT_VERSION
from outbox_core.table import TableName

if TYPE_CHECKING:
    from outbox_core.stores.postgres.catalog.read import Connection, Relation

_MAY_CHANGE: Final[frozenset[Kind]] = frozenset({"check", "index", "parameter"})
"""Kinds of objects that the next schema version may have in another form while this library still works on it."""

_NAMED_WITHIN: Final[frozenset[Kind]] = frozenset({"column", "parameter", "rule", "trigger"})
"""Kinds of objects whose name is unique only within their table."""


async def verify(connection: Connection, table: str | TableName) -> Report:
    """Compare a table, its sequence, its audit and the schema's shared tables with what this library needs.

    Reads the catalog only: it writes nothing, leaves a transaction of the caller's as it was, and works on a replica
    and for a role that may not read a single row (which then shows as warnings). Nullable columns, harmless indexes,
    foreign keys and AFTER triggers of the user's own are tolerated. On a schema one version ahead, checks, indexes and
    parameters that differ are warnings.

    Raises `SchemaMissing` when there is no such table, and `SchemaMismatch` without a difference when it is no
    outbox at all: nothing would make one of it.
    """
    name = TableName.parse(table)
    check_connection(name, connection)
    async with plain_search_path(connection):
        relation = await read_relation(connection, name)
        if relation is None:
            raise SchemaMissing(name)
        sequence = await read_sequence(connection, name, name.name + SEQUENCE_SUFFIX)
        recorded = await read_version(connection, name)
        if not recorded and _is_foreign(relation):
            raise SchemaMismatch(name, ())
        shared = [
            *await _shared(connection, AuditName.of(name), AUDIT),
            *await _shared(connection, TableName(name.schema, LEADER_TABLE), LEADER),
            *await _shared(connection, TableName(name.schema, VERSION_TABLE), VERSION),
            *await _leader_row(connection, name),
        ]
    itself, bond = compare_sequence(name, sequence)
    own = list(compare_relation(name, OUTBOX, relation))
    # A column that draws from the sequence needs it to exist, and can own it only once it exists itself.
    last_column = max((at + 1 for at, each in enumerate(own) if each.kind in {"table", "column"}), default=0)
    differences = [*itself, *own[:last_column], *bond, *own[last_column:], *shared, *_version(name, recorded)]
    if recorded == CURRENT_VERSION + 1:
        differences = [
            replace(each, severity="warning") if each.kind in _MAY_CHANGE else each for each in differences
        ]
    return Report(name, recorded, tuple(differences))


async def version(connection: Connection, table: str | TableName) -> int:
    """The schema version recorded for a table; 0 when none is, or when this role may not read it."""
    name = TableName.parse(table)
    check_connection(name, connection)
    return await read_version(connection, name) or 0


async def require(connection: Connection, table: str | TableName) -> int:
    """Make sure, with two cheap reads, that this library works on a table's schema; returns the recorded version.

    It works on the current version and the next, so that the schema is upgraded before the code. Raises
    `SchemaMissing`, `SchemaTooOld` or `SchemaTooNew`, and `SchemaMismatch` for a table that is no outbox or one whose
    version is not on record. To a role that may not read the version, any outbox counts as current.
    """
    name = TableName.parse(table)
    check_connection(name, connection)
    if not await relation_exists(connection, name):
        raise SchemaMissing(name)
    recorded = await read_version(connection, name)
    if not recorded:
        report = await verify(connection, name)
        if recorded is None:
            return CURRENT_VERSION
        report.raise_if_different()
    if recorded < CURRENT_VERSION:
        raise SchemaTooOld(name, recorded, CURRENT_VERSION)
    if recorded > CURRENT_VERSION + 1:
        raise SchemaTooNew(name, recorded, CURRENT_VERSION + 1)
    return recorded


async def require_leader(connection: Connection, table: str | TableName, *, row: bool) -> None:
    """Make sure that the leader table is there, which every claim names, and with ``row`` the table's row in it,
    without which no relay can lead. Raises `SchemaMismatch` with the statements that fix it.

    To a role that may not read the leader table, the row counts as there.
    """
    name = TableName.parse(table)
    leader = TableName(name.schema, LEADER_TABLE)
    there = await has_leader_row(connection, name) if row else await relation_exists(connection, leader)
    if there is False:
        async with plain_search_path(connection):
            differences = await _shared(connection, leader, LEADER)
            differences += await _leader_row(connection, name) if row else []
        Report(name, None, tuple(differences)).raise_if_different()


def _is_foreign(relation: Relation) -> bool:
    """True when most of the columns of an outbox are missing."""
    missing = OUTBOX.columns.keys() - relation.columns.keys()
    return len(missing) > len(OUTBOX.columns) / 2


async def _shared(connection: Connection, table: TableName, expected: Shape) -> list[Difference]:
    found = await read_relation(connection, table)
    if found is not None:
        return [
            replace(each, name=f"{table.name}.{each.name}") if each.kind in _NAMED_WITHIN else each
            for each in compare_relation(table, expected, found)
        ]
    definition = table_definition(expected, table)
    statement = fix("create_table", table, definition=definition)
    return [Difference("table", str(table), "a table kept beside the outbox", "missing", statement)]


async def _leader_row(connection: Connection, table: TableName) -> list[Difference]:
    found = await has_leader_row(connection, table)
    if found:
        return []
    wanted = f"a row for {table.name} in {LEADER_TABLE}"
    if found is None:
        return [_unreadable(wanted, TableName(table.schema, LEADER_TABLE))]
    return [Difference("leader", table.name, wanted, "none", fix("insert_leader", table))]


def _version(table: TableName, recorded: int | None) -> list[Difference]:
    wanted = f"schema version {CURRENT_VERSION} or {CURRENT_VERSION + 1}"
    if recorded is None:
        return [_unreadable(wanted, TableName(table.schema, VERSION_TABLE))]
    if recorded == 0:
        statement = fix("record_version", table, definition=str(CURRENT_VERSION))
        return [Difference("version", str(table), wanted, "no version recorded", statement)]
    if recorded < CURRENT_VERSION:
        advice = (
            f"-- outbox schema upgrade --table {table}\n"
            f"-- or in Python: await outbox_core.schema.upgrade(connection, {str(table)!r})"
        )
        return [Difference("version", str(table), wanted, f"schema version {recorded}", advice)]
    if recorded > CURRENT_VERSION + 1:
        advice = "-- upgrade outbox-core"
        return [Difference("version", str(table), wanted, f"schema version {recorded}", advice)]
    return []


def _unreadable(wanted: str, table: TableName) -> Difference:
    advice = "-- grant SELECT on it: `outbox schema roles … --viewer ROLE` or schema.roles prints the grants"
    return Difference("privilege", str(table), wanted, "not readable by this role", advice, "warning")
