"""Features of a relation that change, hide or lose rows without an error. Pure: no database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outbox_core.schema_tools import Difference
from outbox_core.stores.postgres.schema.fixes import fix

if TYPE_CHECKING:
    from outbox_core.stores.postgres.catalog.read import Relation
    from outbox_core.table import TableName


def find_hazards(table: TableName, found: Relation) -> Iterator[Difference]:
    """Row security, rules, triggers before an insert and inheritance, each with the statement that ends it."""
    if found.row_security:
        statement = fix("disable_row_security", table)
        if found.row_security_forced:
            statement += "\n" + fix("unforce_row_security", table)
        yield Difference(
            "table",
            str(table),
            "no row level security",
            f"row level security {'enabled and forced' if found.row_security_forced else 'enabled'}:"
            " the relay would see no rows",
            statement,
        )
    for child in found.children:
        yield Difference(
            "table",
            child,
            f"no table that inherits from {table}",
            "one: its rows pass for messages, but no key of the library's holds for them",
            fix("disinherit", table, definition=child),
            "warning",
        )
    for name, command in found.rules.items():
        yield Difference(
            "rule",
            name,
            "no rule",
            f"a rule ON {command}: it may replace what the library writes by something else",
            fix("drop_rule", table, name=name),
        )
    for name in found.insert_triggers:
        yield Difference(
            "trigger",
            name,
            "no row trigger BEFORE INSERT",
            "one: if it returns NULL, messages are lost without an error",
            fix("drop_trigger", table, name=name),
            "warning",
        )
