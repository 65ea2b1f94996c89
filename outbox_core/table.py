"""The name of an outbox table: parsed once, validated strictly, quoted wherever it meets SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from outbox_core.errors import InvalidTableName

MAX_NAME_BYTES: Final = 48
"""PostgreSQL cuts identifiers at 63 bytes; 15 are left for the names derived from a table's, such as its indexes. Other
servers allow at least as many (MySQL: 64 characters)."""

MAX_SCHEMA_BYTES: Final = 63

DEFAULT_SCHEMA: Final = "public"
"""The schema of an unqualified name. A store whose server has none of that name takes it for the default of its
connection, such as the database of a MySQL URL."""

_IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_]*")
_SHARED_NAMES: Final = frozenset({"outbox_leader", "outbox_schema_version"})


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A schema and a table in it, both plain lower-case identifiers.

    An unqualified name means the schema ``public``, never whatever the connection's ``search_path`` finds first.
    ``str(table)`` is the readable ``schema.name``; ``quoted`` is the form for SQL.
    """

    schema: str
    name: str

    def __post_init__(self) -> None:
        _check(self.schema, "schema", MAX_SCHEMA_BYTES, whole=f"{self.schema}.{self.name}")
        _check(self.name, "table", MAX_NAME_BYTES, whole=f"{self.schema}.{self.name}")
        if self.schema.startswith("pg_"):
            raise InvalidTableName(str(self), "schemas that begin with pg_ belong to PostgreSQL itself")
        if self.schema == "information_schema":
            raise InvalidTableName(str(self), "the schema information_schema belongs to PostgreSQL itself")

    @classmethod
    def parse(cls, value: str | TableName) -> TableName:
        """Read ``"orders_outbox"`` or ``"billing.orders_outbox"``; a `TableName` comes back as it is.

        The names of the tables that the outboxes of a schema share are refused: they hold no messages.
        """
        if isinstance(value, TableName):
            _check_not_shared(value.name, whole=value)
            return value
        if not isinstance(value, str):
            raise InvalidTableName(
                value, f"expected 'name' or 'schema.name' as a str, got {type(value).__name__}"
            )
        parts = value.split(".")
        if len(parts) > 2:
            raise InvalidTableName(value, "expected 'name' or 'schema.name', with one dot at most")
        schema, name = parts if len(parts) == 2 else (DEFAULT_SCHEMA, parts[0])
        _check(schema, "schema", MAX_SCHEMA_BYTES, whole=value)
        _check(name, "table", MAX_NAME_BYTES, whole=value)
        _check_not_shared(name, whole=value)
        return cls(schema, name)

    @property
    def quoted(self) -> str:
        """The name as it stands in SQL."""
        return f'"{self.schema}"."{self.name}"'

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def _check_not_shared(name: str, *, whole: str | TableName) -> None:
    if name in _SHARED_NAMES:
        raise InvalidTableName(
            whole, "this name belongs to a table the schema's outboxes share; choose another for the messages"
        )


def _check(identifier: str, part: str, max_bytes: int, *, whole: str) -> None:
    if not isinstance(identifier, str):
        raise InvalidTableName(identifier, f"the {part} name must be a str, got {type(identifier).__name__}")
    if not identifier:
        raise InvalidTableName(whole, f"the {part} name is empty")
    if _IDENTIFIER.fullmatch(identifier) is None:
        hint = ""
        if len(identifier) <= max_bytes and _IDENTIFIER.fullmatch(identifier.lower()) is not None:
            hint = f" (PostgreSQL folds unquoted upper case to lower case; write {identifier.lower()!r})"
        raise InvalidTableName(
            whole,
            f"the {part} name may hold only lower-case letters a-z, digits and underscores,"
            f" and may not begin with a digit{hint}",
        )
    if len(identifier) > max_bytes:
        raise InvalidTableName(
            whole, f"the {part} name has {len(identifier)} bytes and at most {max_bytes} are allowed"
        )
