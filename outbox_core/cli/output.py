"""What commands show: tables on a terminal, plain lines in a pipe, one JSON document where that is asked for."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal, cast
from uuid import UUID

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from outbox_core.durations import format_duration
from outbox_core.table import TableName

_IDS: Final = frozenset({"event_id", "id"})
"""What is copied into the next command stays in one piece."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Figures stand to the right."""

    name: str
    side: Literal["left", "right"] = "left"
    style: str = ""


class Output:
    """Where a command writes. Standard output holds the result and nothing else; notes go to standard error.

    A table is drawn on a terminal; in a pipe it is one line a row, cells separated by tabs, names in the first line.
    With ``as_json`` only `document` writes to standard output. Control characters never reach the terminal: what a
    broker answered may hold any.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    @property
    def drawn(self) -> bool:
        """Whether a person reads this on a terminal."""
        return not self.as_json and sys.stdout.isatty()

    @cached_property
    def console(self) -> Console:
        """Of rich, which respects NO_COLOR, TERM and the width of the terminal."""
        return Console(file=sys.stdout, highlight=False, emoji=False)

    def document(self, value: object) -> None:
        """Write the one JSON document of this command, when JSON was asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n")
            sys.stdout.flush()

    def table(
        self,
        columns: Sequence[Column | str],
        rows: Sequence[Sequence[object]],
        *,
        title: str = "",
        empty: str = "",
        header: bool = True,
    ) -> None:
        """A table, or ``empty`` as a note when it has no rows."""
        if self.as_json:
            return
        if not rows and empty:
            self.note(empty)
            return
        named = [Column(column) if isinstance(column, str) else column for column in columns]
        if not self.drawn:
            if header:
                sys.stdout.write("\t".join(column.name for column in named) + "\n")
            for row in rows:
                sys.stdout.write("\t".join(shown(cell) for cell in row) + "\n")
            sys.stdout.flush()
            return
        self.console.print(drawn_table(named, rows, title=title))

    def fields(self, values: Mapping[str, object], *, title: str = "") -> None:
        """One thing, a line for each of its values."""
        if self.as_json:
            return
        if not self.drawn:
            for name, value in values.items():
                sys.stdout.write(f"{name}\t{shown(value)}\n")
            return
        table = Table(show_header=False, box=None, title=escape(title) or None, title_justify="left")
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in values.items():
            table.add_row(escape(name), escape(shown(value)))
        self.console.print(table)

    def line(self, text: str) -> None:
        """A line of the result, unless JSON was asked for. May have several lines, as SQL does."""
        if not self.as_json:
            sys.stdout.write(visible(text, keep="\n\t") + "\n")

    def note(self, text: str) -> None:
        """Something for the person, on standard error."""
        sys.stderr.write(visible(text, keep="\n\t") + "\n")


def drawn_table(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, title: str = "") -> Table:
    """A table for a terminal."""
    table = Table(title=escape(title) or None, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(
            escape(column.name),
            justify=column.side,
            style=column.style or None,
            overflow="fold",
            no_wrap=column.name in _IDS,
        )
    for row in rows:
        table.add_row(*(escape(shown(cell)) for cell in row))
    return table


def shown(value: object) -> str:
    """A value for people; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, timedelta):
        return format_duration(value.total_seconds())
    if isinstance(value, Enum):
        return visible(str(value.value))
    return visible(str(value))


def visible(text: str, *, keep: str = "") -> str:
    """Text without control characters, each written as an escape, so that it can neither steer a terminal nor break a
    line in two."""
    return "".join(
        character if character in keep or character.isprintable() else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def plain(value: object) -> Any:
    """A value as JSON has it: moments in ISO 8601 and UTC, durations in seconds, data classes as objects.

    A figure that is not finite is null: JSON has no other way to say so.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | TableName):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {str(name): plain(each) for name, each in members.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [plain(each) for each in cast("Iterable[object]", value)]
    raise TypeError(f"a {type(value).__name__} has no form in JSON")
