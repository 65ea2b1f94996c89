"""The numbered steps between schema versions, and their SQL as text for psql, Alembic, Atlas or goose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outbox_core.errors import SchemaError
from outbox_core.stores.postgres.advisory import lock_key
from outbox_core.stores.postgres.schema.arguments import check_seconds
from outbox_core.stores.postgres.sql import render
from outbox_core.table import TableName

LOCK_TIMEOUT: Final = 2.0
"""Seconds a schema change may wait for, and so keep others waiting behind, a lock on the table."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step, from ``version - 1`` to ``version`` and back.

    ``locks`` says what the step up holds. A step that is not ``transactional`` builds indexes concurrently: it runs
    outside a transaction, one statement after the other, and can be repeated after any failure.
    """

    version: int
    name: str
    transactional: bool
    locks: str

    def up(self, table: str | TableName, *, lock_timeout: float = LOCK_TIMEOUT) -> str:
        """The SQL of the step; it records the new version itself."""
        return _text(f"migrations/{self.version:04}_{self.name}.up.sql", TableName.parse(table), lock_timeout)

    def down(self, table: str | TableName, *, lock_timeout: float = LOCK_TIMEOUT) -> str:
        """The SQL that undoes the step; below version 1 it drops the table."""
        return _text(
            f"migrations/{self.version:04}_{self.name}.down.sql", TableName.parse(table), lock_timeout
        )


_MIGRATIONS: Final = (
    Migration(1, "table", transactional=True, locks="none on anything that existed before"),
    Migration(2, "indexes", transactional=False, locks="SHARE UPDATE EXCLUSIVE on the table; writers go on"),
    Migration(3, "audit", transactional=True, locks="none on anything that existed before"),
)

CURRENT_VERSION: Final = _MIGRATIONS[-1].version
"""The schema version this library makes and needs; it also works on the next one."""


def migrations() -> tuple[Migration, ...]:
    """Every step there is, in order."""
    return _MIGRATIONS


def create_sql(table: TableName, *, lock_timeout: float = LOCK_TIMEOUT) -> str:
    """The whole current schema for a table that does not exist yet; runs in one transaction."""
    return _text("ddl/create.sql", table, lock_timeout)


def statements(text: str) -> list[str]:
    """The statements of a step that runs outside a transaction: an empty line ends each."""
    return [statement for statement in text.split("\n\n") if statement.strip()]


def script(
    table: str | TableName,
    *,
    from_version: int = 0,
    to_version: int = CURRENT_VERSION,
    transaction: bool = True,
    lock_timeout: float = LOCK_TIMEOUT,
) -> str:
    """The SQL that takes a table from one version to another, complete: psql alone can run it.

    From 0 to the current version it is one transaction. Pass ``transaction=False`` to leave out BEGIN and COMMIT, for a
    tool that opens the transaction itself. A part that must run outside a transaction says so in its first lines.
    ``lock_timeout`` is in seconds.
    """
    name = TableName.parse(table)
    for version in (from_version, to_version):
        check_version(name, version)
    if from_version == 0 and to_version == CURRENT_VERSION:
        return _wrapped(create_sql(name, lock_timeout=lock_timeout), transaction)
    if from_version <= to_version:
        steps = [(step, step.up) for step in _MIGRATIONS[from_version:to_version]]
    else:
        steps = [(step, step.down) for step in reversed(_MIGRATIONS[to_version:from_version])]
    return "\n".join(
        _wrapped(text(name, lock_timeout=lock_timeout), transaction and step.transactional)
        for step, text in steps
    )


def check_version(table: TableName, version: object) -> None:
    """Refuse a version this library has no step for."""
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= CURRENT_VERSION:
        raise SchemaError(
            table, f"there is no schema version {version!r}; this library knows 0 to {CURRENT_VERSION}"
        )


def check_lock_timeout(table: TableName, lock_timeout: object) -> None:
    """Refuse a lock timeout PostgreSQL has no number of milliseconds for; to it 0 would mean without end."""
    check_seconds(table, "lock_timeout", lock_timeout, at_least=0.001)


def schema_lock(table: TableName) -> int:
    """The advisory lock that keeps installers and upgraders of one PostgreSQL schema apart."""
    return lock_key(f"outbox-schema:{table.schema}")


def _wrapped(text: str, transaction: bool) -> str:
    return f"BEGIN;\n\n{text}\nCOMMIT;\n" if transaction else text


def _text(path: str, table: TableName, lock_timeout: float) -> str:
    check_lock_timeout(table, lock_timeout)
    return (
        render(path, table)
        .replace("{lock_timeout}", f"{round(lock_timeout * 1000)}ms")
        .replace("{schema_lock}", str(schema_lock(table)))
    )
