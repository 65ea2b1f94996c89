"""SQL texts: read from the package's ``.sql`` files, with a table's quoted names put in."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outbox_core.table import TableName

_INCLUDE: Final = re.compile(r"\{include ([a-z_/]+\.sql)\}")


@cache
def render(path: str, table: TableName) -> str:
    """The statement in ``path`` (such as ``queries/enqueue.sql``) for one table.

    ``{table}`` becomes the quoted, schema-qualified name, ``{schema}`` the quoted schema and ``{name}`` the bare name
    for derived identifiers such as ``"{name}_pending"``. `TableName` has validated all three; values never come this
    way, they are always parameters. ``{include path}`` puts in another file's text, such as a list of columns.
    """
    text = _INCLUDE.sub(lambda found: _read(found[1]).rstrip(), _read(path))
    return (
        text.replace("{table}", table.quoted)
        .replace("{schema}", f'"{table.schema}"')
        .replace("{name}", table.name)
    )


def _read(path: str) -> str:
    return files("outbox_core.stores.postgres").joinpath(path).read_text(encoding="utf-8")


@cache
def query(name: str, table: TableName) -> str:
    """A statement of ``queries/`` as it is sent: without its comments, so that the server's activity view shows it."""
    lines = render(f"queries/{name}.sql", table).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--"))
