"""Compares a relation the catalog describes with the shape it should have. Pure: no database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from outbox_core.schema_tools import Difference, Kind
from outbox_core.stores.postgres.catalog.expected import CLAIM_COLUMNS, SEQUENCE_COLUMN, SEQUENCE_SUFFIX
from outbox_core.stores.postgres.schema.fixes import column_definition, default_expression, fix, quote
from outbox_core.stores.postgres.schema.hazards import find_hazards

if TYPE_CHECKING:
    from outbox_core.stores.postgres.catalog.expected import Column, Shape
    from outbox_core.stores.postgres.catalog.read import Relation, Sequence
    from outbox_core.table import TableName

_NOT_VALID: Final = " NOT VALID"
_MAX_BIGINT: Final = 2**63 - 1


def compare_relation(table: TableName, expected: Shape, found: Relation) -> Iterator[Difference]:
    """Every difference of one relation, in an order in which their fixes can be run."""
    yield from _storage(table, found)
    yield from find_hazards(table, found)
    yield from _columns(table, expected, found)
    yield from _constraints(table, expected, found)
    yield from _indexes(table, expected, found)
    yield from _parameters(table, expected, found)


def compare_sequence(table: TableName, found: Sequence | None) -> tuple[list[Difference], list[Difference]]:
    """Differences of the sequence itself, and of its bond to the column: the columns' fixes go between the two."""
    name = table.name + SEQUENCE_SUFFIX
    owner = f"{table}.{SEQUENCE_COLUMN}"
    if found is None:
        return (
            [
                Difference(
                    "sequence",
                    name,
                    "a bigint sequence",
                    "missing",
                    fix("create_sequence", table, name=name),
                )
            ],
            [
                Difference(
                    "sequence",
                    name,
                    f"owned by {owner}",
                    "missing",
                    fix("continue_sequence", table, name=name),
                )
            ],
        )
    itself: list[Difference] = []
    # A cache above 1 hands out blocks per session: later messages of a key would get lower sequences.
    wanted = ("bigint", 1, 1, False, _MAX_BIGINT)
    if (found.type, found.increment, found.cache, found.cycle, found.maximum) != wanted:
        shown = (
            f"{found.type}, increment {found.increment}, cache {found.cache}, maximum {found.maximum}"
            f"{', cycling' if found.cycle else ''}"
        )
        expected = f"bigint, increment 1, cache 1, maximum {_MAX_BIGINT}"
        itself.append(Difference("sequence", name, expected, shown, fix("alter_sequence", table, name=name)))
    if found.persistence != "p":
        itself.append(
            Difference(
                "sequence",
                name,
                "a logged sequence",
                "an unlogged sequence: a crash of the server sets it back to its start",
                fix("set_sequence_logged", table, name=name),
            )
        )
    bond: list[Difference] = []
    if found.owner != owner:
        shown = f"owned by {found.owner}" if found.owner else "owned by nothing"
        bond.append(
            Difference("sequence", name, f"owned by {owner}", shown, fix("own_sequence", table, name=name))
        )
    return itself, bond


def _storage(table: TableName, found: Relation) -> Iterator[Difference]:
    if found.kind != "r":
        kinds = {
            "p": "a partitioned table",
            "v": "a view",
            "m": "a materialized view",
            "f": "a foreign table",
        }
        yield Difference(
            "table",
            str(table),
            "an ordinary table",
            kinds[found.kind],
            f"-- rename it, then `outbox schema create --table {table}` or"
            f" `await outbox_core.schema.create(connection, {str(table)!r})`, and copy its rows",
        )
    elif found.persistence != "p":
        yield Difference(
            "table",
            str(table),
            "a logged table",
            "an unlogged table: a crash of the server empties it",
            fix("set_logged", table),
        )


def _columns(table: TableName, expected: Shape, found: Relation) -> Iterator[Difference]:
    for name, column in expected.columns.items():
        actual = found.columns.get(name)
        definition = column_definition(column, table)
        if actual is None:
            yield Difference(
                "column",
                name,
                definition,
                "missing",
                fix("add_column", table, name=name, definition=definition),
            )
        else:
            yield from _column(table, name, column, actual)
    for name, actual in found.columns.items():
        if name not in expected.columns and not actual.nullable and actual.default is None:
            yield Difference(
                "column",
                name,
                "nullable or with a default, being none of the library's columns",
                f"{actual.type} NOT NULL without a default: every enqueue fails",
                fix("drop_not_null", table, name=name),
            )


def _column(table: TableName, name: str, expected: Column, found: Column) -> Iterator[Difference]:
    if found.type != expected.type:
        yield Difference(
            "column",
            name,
            f"type {expected.type}",
            f"type {found.type}",
            fix("set_type", table, name=name, definition=expected.type),
        )
    if found.default != expected.default:
        statement = "drop_identity" if found.default == "identity" else "drop_default"
        first = fix(statement, table, name=name) + "\n" if found.default is not None else ""
        then = fix("set_default", table, name=name, definition=default_expression(expected, table))
        yield Difference(
            "column",
            name,
            f"default {expected.default}" if expected.default else "no default",
            f"default {found.default}" if found.default else "no default",
            (first + then if expected.default else first).strip(),
        )
    if found.nullable != expected.nullable:
        yield Difference(
            "column",
            name,
            "NULL" if expected.nullable else "NOT NULL",
            "NULL" if found.nullable else "NOT NULL",
            fix("drop_not_null" if expected.nullable else "set_not_null", table, name=name),
        )


def _constraints(table: TableName, expected: Shape, found: Relation) -> Iterator[Difference]:
    names = {table.name + suffix: definition for suffix, definition in expected.constraints.items()}
    others = {each.definition: name for name, each in found.constraints.items() if name not in names}
    renamed = {name: others[definition] for name, definition in names.items() if definition in others}
    for other, extra in found.constraints.items():
        if other not in names and other not in renamed.values():
            yield Difference(
                "check" if extra.kind == "c" else "key",
                other,
                "no constraint but the library's",
                f"{extra.definition}: it may refuse messages or their state changes",
                fix("drop_constraint", table, name=other),
                "warning",
            )
    for name, definition in names.items():
        kind: Kind = "check" if definition.startswith("CHECK") else "key"
        actual = found.constraints.get(name)
        if actual is None and name in renamed:
            shown = f"the same under the name {renamed[name]}"
            statement = fix("rename_constraint", table, name=renamed[name], definition=quote(name))
        elif actual is None:
            shown = "missing"
            statement = fix("add_constraint", table, name=name, definition=definition)
        elif actual.definition == definition:
            continue
        else:
            shown = actual.definition
            unchecked = actual.definition == definition + _NOT_VALID
            statement = fix(
                "validate_constraint" if unchecked else "replace_constraint",
                table,
                name=name,
                definition=definition,
            )
        yield Difference(kind, name, definition, shown, statement)


def _indexes(table: TableName, expected: Shape, found: Relation) -> Iterator[Difference]:
    names = {table.name + suffix: definition for suffix, definition in expected.indexes.items()}
    others = {
        each.definition: name for name, each in found.indexes.items() if name not in names and each.valid
    }
    for name, definition in names.items():
        actual = found.indexes.get(name)
        if actual is None and definition in others:
            shown = f"the same under the name {others[definition]}"
            statement = fix("rename_index", table, name=others[definition], definition=quote(name))
        elif actual is None:
            shown = "missing"
            statement = fix("create_index", table, name=name, definition=definition)
        elif actual.definition == definition and actual.valid:
            continue
        else:
            shown = actual.definition if actual.valid else "an invalid index, left by a build that failed"
            statement = fix("replace_index", table, name=name, definition=definition)
        yield Difference("index", name, definition, shown, statement)
    for name, actual in found.indexes.items():
        if name in names or actual.constraint:
            continue
        claimed = ", ".join(sorted(actual.columns & CLAIM_COLUMNS))
        if claimed and expected.indexes and not actual.summarizing:
            wanted = "no index that names a column the claim updates"
            shown = (
                f"{actual.definition} names {claimed}: claims are no longer HOT and cost about twice as much"
            )
        elif actual.unique:
            wanted = "no unique index but the library's"
            shown = f"{actual.definition}: it may refuse messages"
        else:
            continue
        yield Difference("index", name, wanted, shown, fix("drop_index", table, name=name), "warning")


def _parameters(table: TableName, expected: Shape, found: Relation) -> Iterator[Difference]:
    for name, value in expected.parameters.items():
        actual = found.parameters.get(name)
        if actual is None or float(actual) != float(value):
            statement = fix("set_parameter", table, name=name, definition=value)
            yield Difference("parameter", name, value, actual or "not set", statement)
    switch = "autovacuum_enabled"
    # PostgreSQL takes any unambiguous beginning of these words.
    if found.parameters.get(switch, "true").lower()[:2] in {"f", "fa", "of", "n", "no", "0"}:
        yield Difference(
            "parameter",
            switch,
            "on",
            f"{found.parameters[switch]}: dead rows pile up and claims slow down",
            fix("reset_parameter", table, name=switch),
        )
