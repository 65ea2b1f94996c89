"""A driver's errors in this library's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from outbox_core.errors import (
    ContentUnreadable,
    PermissionDenied,
    SchemaMissing,
    StorageError,
    StorageTimeout,
    StorageUnavailable,
)
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


def translated(error: asyncpg.PostgresError, table: TableName, action: str) -> StorageError:
    """A driver's error in this library's terms. Its text is left behind: it may quote a payload."""
    state = error.sqlstate or ""
    if state in _UNDEFINED_TABLE:
        return SchemaMissing(table)
    if state == _INSUFFICIENT_PRIVILEGE:
        return PermissionDenied(table, f"{action} messages of", part=_PARTS.get(action, "relay"))
    if state == _CANCELLED:
        return StorageTimeout(f"the database broke off to {action} messages of {table}: {summary(error)}")
    if state == _READ_ONLY or state.startswith(_TRANSIENT):
        return StorageUnavailable(f"the database cannot {action} now: {summary(error)}")
    if action == "claim" and state.startswith(_OF_CONTENT):
        return ContentUnreadable(f"the database cannot read a message of {table}: {summary(error)}")
    return StorageError(f"the database refused to {action} messages of {table}: {summary(error)}")
