"""The statements that fix a difference, from ``ddl/fixes.sql``."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outbox_core.stores.postgres.catalog.expected import Column, Shape
    from outbox_core.table import TableName

_NAMED: Final = re.compile(r"^-- name: (\w+)\n(.+?)\n*(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


def fix(statement: str, table: TableName, *, name: str = "", definition: str = "") -> str:
    """The named statement for one object of a table. ``name`` is quoted here; ``definition`` is put in as it is."""
    return _statements()[statement].format(
        table=table.quoted,
        schema=f'"{table.schema}"',
        name=table.name,
        object=quote(name),
        definition=definition,
    )


def quote(identifier: str) -> str:
    """Any identifier, also one that is not the library's own, as it stands in SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def column_definition(column: Column, table: TableName) -> str:
    """Return the text after a column's name in CREATE TABLE and ADD COLUMN."""
    default = f" DEFAULT {default_expression(column, table)}" if column.default is not None else ""
    return f"{column.type}{'' if column.nullable else ' NOT NULL'}{default}"


def default_expression(column: Column, table: TableName) -> str:
    """Return a column's default with the name of the table's own sequence put in."""
    return (column.default or "").replace("<sequence>", f'"{table.schema}"."{table.name}_sequence_seq"')


def table_definition(shape: Shape, table: TableName) -> str:
    """Return the text after a table's name in CREATE TABLE."""
    columns = [f"{quote(name)} {column_definition(column, table)}" for name, column in shape.columns.items()]
    constraints = [
        f"CONSTRAINT {quote(table.name + suffix)} {definition}"
        for suffix, definition in shape.constraints.items()
    ]
    parameters = ", ".join(f"{name} = {value}" for name, value in shape.parameters.items())
    return f"({', '.join(columns + constraints)})" + (f" WITH ({parameters})" if parameters else "")


@cache
def _statements() -> dict[str, str]:
    text = files("outbox_core.stores.postgres").joinpath("ddl/fixes.sql").read_text(encoding="utf-8")
    return dict(_NAMED.findall(text))
