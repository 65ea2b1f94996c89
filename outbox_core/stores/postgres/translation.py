"""A driver's errors in this library's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from outbox_core.errors import (
    ContentUnreadable,
    PermissionDenied,
    SchemaError,
    SchemaMissing,
    StorageError,
    StorageTimeout,
    StorageUnavailable,
)
from outbox_core.stores.postgres.catalog.expected import LEADER_TABLE
from outbox_core.stores.postgres.schema.fixes import fix
from outbox_core.stores.postgres.sessions import summary

if TYPE_CHECKING:
    import asyncpg

    from outbox_core.errors.storage import Part
    from outbox_core.table import TableName

_TRANSIENT: Final = ("08", "40", "53", "55", "57", "58")
_READ_ONLY: Final = "25006"
_CANCELLED: Final = "57014"
"""By its ``statement_timeout``, as a rule."""
_OF_CONTENT: Final = ("22", "54", "XX")
"""Data that cannot be read, text beyond what the server writes out, damaged storage."""
_UNDEFINED_TABLE: Final = ("42P01", "3F000")
_LEADER_TABLE: Final = re.compile(rf"\.{LEADER_TABLE}\b")
_INSUFFICIENT_PRIVILEGE: Final = "42501"
_PARTS: Final[Mapping[str, Part]] = {
    "create": "migrator",
    "upgrade": "migrator",
    "enqueue": "producer",
    "look at": "viewer",
    "list": "viewer",
    "count": "viewer",
    "read": "viewer",
    "read the audit of": "viewer",
    "plan": "operator",
    "replay": "operator",
    "discard": "operator",
    "release": "operator",
    "postpone": "operator",
    "clean": "operator",
}
"""Who may do what; the rest is a relay's."""


def translated(error: asyncpg.PostgresError, table: TableName, action: str, where: str = "") -> StorageError:
    """A driver's error in this library's terms. Its text is left out: it may quote a payload. ``where`` is what may
    be said of the database's address, with a space before it."""
    state = error.sqlstate or ""
    if state in _UNDEFINED_TABLE:
        return _undefined(error, table)
    if state == _INSUFFICIENT_PRIVILEGE:
        return PermissionDenied(table, f"{action} messages of", part=_PARTS.get(action, "relay"))
    if state == _CANCELLED:
        return StorageTimeout(f"the database broke off to {action} messages of {table}: {summary(error)}")
    if state == _READ_ONLY:
        return StorageUnavailable(_read_only(error, action, where))
    if state.startswith(_TRANSIENT):
        return StorageUnavailable(f"the database cannot {action} now: {summary(error)}")
    if action == "claim" and state.startswith(_OF_CONTENT):
        return ContentUnreadable(f"the database cannot read a message of {table}: {summary(error)}")
    return StorageError(f"the database refused to {action} messages of {table}: {summary(error)}")


def unelected(error: asyncpg.PostgresError, table: TableName) -> StorageError:
    """Why an election could not be held, from the driver's error about one of its statements."""
    if error.sqlstate in _UNDEFINED_TABLE:
        return _undefined(error, table)
    if error.sqlstate == _INSUFFICIENT_PRIVILEGE:
        return PermissionDenied(table, "lead")
    if error.sqlstate == _READ_ONLY:
        return StorageUnavailable(_read_only(error, "hold an election", ""))
    return StorageUnavailable(f"the database did not hold the election: {summary(error)}")


def without_leader_row(table: TableName) -> SchemaError:
    """No relay can lead: the row is gone that an election would be about."""
    return SchemaError(
        table,
        f"it has no row in {table.schema}.{LEADER_TABLE}, without which no relay can lead it; put it back:"
        f" {fix('insert_leader', table)} (`outbox schema verify --table {table}` says the same)",
    )


def _undefined(error: asyncpg.PostgresError, table: TableName) -> SchemaError:
    if _LEADER_TABLE.search(str(error)) is None:
        return SchemaMissing(table)
    return SchemaError(
        table,
        f"there is no table {table.schema}.{LEADER_TABLE}, which is kept beside it and has who leads its relays;"
        f" `outbox schema verify --table {table}` prints the statements that make it again",
    )


def _read_only(error: asyncpg.PostgresError, action: str, where: str) -> str:
    return (
        f"the database{where} is read-only and cannot {action}: it is a stand-by, or default_transaction_read_only is"
        " on; name the primary in the database URL, or all its servers with target_session_attrs=read-write"
        f" [{summary(error)}]"
    )
