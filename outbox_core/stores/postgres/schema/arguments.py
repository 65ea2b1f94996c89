"""Checks what callers hand to the schema functions, before anything is asked of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from outbox_core.errors import SchemaError

if TYPE_CHECKING:
    from outbox_core.table import TableName

_LONGEST: Final = 2_147_483
"""Seconds; PostgreSQL keeps a timeout in milliseconds, in 31 bits."""


def check_connection(table: TableName, given: object, *, or_dsn: bool = False) -> None:
    """Refuse what is no connection of asyncpg's. The object itself is not shown: a DSN may hold a password."""
    if isinstance(given, asyncpg.Connection | PoolConnectionProxy):
        return
    kind = type(given)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise SchemaError(
        table,
        f"expected an asyncpg connection{' or a DSN' if or_dsn else ''}, got {name}; open one with"
        " `await asyncpg.connect(dsn)`, or take one from a pool with `async with pool.acquire() as connection`",
    )


def check_seconds(table: TableName, name: str, given: object, *, at_least: float = 0) -> None:
    """Refuse what is no finite number of seconds; NaN is in no range either."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not at_least <= given <= _LONGEST:
        raise SchemaError(
            table,
            f"{name} must be a number of seconds, at least {at_least:g} and at most {_LONGEST}, got {given!r}",
        )
