"""The database and the schema in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from outbox_core.errors.root import OutboxError

if TYPE_CHECKING:
    from outbox_core.table import TableName


Part: TypeAlias = Literal["migrator", "producer", "relay", "viewer", "operator"]
"""What a database role is there for; ``schema.roles`` grants each its own."""


class StorageError(OutboxError):
    """Raised when the database refuses or fails what the library asked of it."""

    code: ClassVar[str] = "STORAGE.ERROR"


class PermissionDenied(StorageError):
    """Raised when the database role may not do what was asked; ``schema.roles`` prints the grants each role needs.

    ``part`` is the one that may do it, so that the text names a command that can be run once a role is put in.
    ``missing`` has the grants that a relay lacked when it started, such as ``DELETE ON shop.orders_outbox``.
    """

    code: ClassVar[str] = "STORAGE.PERMISSION"

    def __init__(
        self, table: TableName, action: str, missing: Sequence[str] = (), part: Part = "relay"
    ) -> None:
        lacks = f"; it lacks {', '.join(missing)}" if missing else ""
        super().__init__(
            f"the database role may not {action} {table}; grant it what its part needs:"
            f" `outbox schema roles --table {table} --{part} ROLE` or"
            f" outbox_core.schema.roles({str(table)!r}, {part}='ROLE') prints the statements{lacks}"
        )
        self.table = table
        self.missing = tuple(missing)
        self.part = part


class ContentUnreadable(StorageError):
    """Raised when the database cannot hand out the content of a message: text too long to be written out, or a row that
    is damaged. A relay makes such a message dead and goes on with the others."""

    code: ClassVar[str] = "STORAGE.UNREADABLE"


class StorageTimeout(StorageError):
    """Raised when the database did not answer in time: whether the statement took effect is not known."""

    code: ClassVar[str] = "STORAGE.TIMEOUT"


class StorageUnavailable(StorageError):
    """Raised when the database cannot be reached, or says that it cannot serve now."""

    code: ClassVar[str] = "STORAGE.UNAVAILABLE"


class SchemaError(StorageError):
    """Raised when a table's schema cannot be worked with or changed. ``table`` is its name."""

    code: ClassVar[str] = "STORAGE.SCHEMA"

    def __init__(self, table: TableName, problem: str) -> None:
        super().__init__(f"{table}: {problem}")
        self.table = table


class SchemaBusy(SchemaError):
    """Raised when a lock that a schema change needs was not had in time. Nothing is half done; run it again."""

    code: ClassVar[str] = "STORAGE.SCHEMA_BUSY"


class SchemaMismatch(SchemaError):
    """Raised when a table is not as the library needs it. ``differences`` has a readable text for each difference.

    There are none when the table is no outbox at all, and so nothing to be mended.
    """

    code: ClassVar[str] = "STORAGE.SCHEMA_MISMATCH"

    def __init__(self, table: TableName, differences: tuple[str, ...]) -> None:
        listed = "\n".join(differences)
        problem = f"{len(differences)} differences from what is expected\n{listed}"
        super().__init__(
            table,
            problem if differences else "it exists and is not an outbox table; choose another name",
        )
        self.differences = differences


class SchemaMissing(SchemaError):
    """Raised when there is no such outbox table. ``command`` is the call that creates it."""

    code: ClassVar[str] = "STORAGE.SCHEMA_MISSING"

    def __init__(self, table: TableName) -> None:
        self.command = f"await outbox_core.schema.create(connection, {str(table)!r})"
        super().__init__(
            table,
            f"there is no such table in this database. Create it with `outbox schema create --table {table}` or"
            f" `{self.command}`",
        )


class SchemaNotEmpty(SchemaError):
    """Raised instead of dropping a table that holds messages."""

    code: ClassVar[str] = "STORAGE.SCHEMA_NOT_EMPTY"

    def __init__(self, table: TableName) -> None:
        super().__init__(
            table,
            "going to version 0 drops the table, and it holds messages; pass drop_messages=True to lose them",
        )


class SchemaTooNew(SchemaError):
    """Raised when a table's schema is more than one version ahead of this library."""

    code: ClassVar[str] = "STORAGE.SCHEMA_TOO_NEW"

    def __init__(self, table: TableName, version: int, newest: int) -> None:
        super().__init__(
            table,
            f"schema version {version} is newer than version {newest}, the newest this library works with;"
            " upgrade outbox-core",
        )
        self.version = version


class SchemaTooOld(SchemaError):
    """Raised when a table's schema is older than this library needs. ``command`` is the call that upgrades it."""

    code: ClassVar[str] = "STORAGE.SCHEMA_TOO_OLD"

    def __init__(self, table: TableName, version: int, needed: int) -> None:
        self.command = f"await outbox_core.schema.upgrade(connection, {str(table)!r})"
        super().__init__(
            table,
            f"schema version {version} is older than version {needed}, which this library needs. Upgrade it with"
            f" `outbox schema upgrade --table {table}` or `{self.command}`",
        )
        self.version = version
