"""SQL texts: read from the package's ``.sql`` files, with a table's quoted names put in."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outbox_core.table import TableName

_INCLUDE: Final = re.compile(r"\{include ([a-z_/]+\.sql)((?: [a-z_]+=[a-z_$0-9]+)*)\}")


@cache
def render(path: str, table: TableName) -> str:
    """The statement in ``path`` (such as ``queries/enqueue.sql``) for one table.

    ``{table}`` becomes the quoted, schema-qualified name, ``{schema}`` the quoted schema and ``{name}`` the bare name
    for derived identifiers such as ``"{name}_pending"``. `TableName` has validated all three; values never come this
    way, they are always parameters. ``{include path}`` puts in another file's text, such as a list of columns, and
    ``{include path word=text}`` has it say ``text`` for each ``{word}``.
    """
    return (
        _expanded(path)
        .replace("{table}", table.quoted)
        .replace("{schema}", f'"{table.schema}"')
        .replace("{name}", table.name)
    )


def _expanded(path: str) -> str:
    """A file's text with the files it includes, and with those that they include."""
    text = files("outbox_core.stores.postgres").joinpath(path).read_text(encoding="utf-8")
    return _INCLUDE.sub(_included, text)


def _included(found: re.Match[str]) -> str:
    text = _expanded(found[1]).rstrip()
    for given in found[2].split():
        word, _, meaning = given.partition("=")
        text = text.replace(f"{{{word}}}", meaning)
    return text


@cache
def query(name: str, table: TableName) -> str:
    """A statement of ``queries/`` as it is sent: without its comments, so that the server's activity view shows it, and
    with the table first, for that view cuts it short."""
    lines = render(f"queries/{name}.sql", table).splitlines()
    return "\n".join([f"-- {table.quoted}", *(line for line in lines if not line.lstrip().startswith("--"))])
