"""The contract of a store's schema tools, and the report of its `verify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from outbox_core.errors import SchemaMismatch

if TYPE_CHECKING:
    from outbox_core.table import TableName

Kind: TypeAlias = Literal[
    "table",
    "column",
    "key",
    "check",
    "index",
    "parameter",
    "rule",
    "trigger",
    "sequence",
    "leader",
    "version",
    "privilege",
]
Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as the library needs it.

    An ``error`` breaks a guarantee or the speed it was measured with; a ``warning`` is something of the user's that may
    get in the way, or something this role may not see. ``mend`` is SQL, or an SQL comment with advice where no
    statement helps; statements with CONCURRENTLY run outside a transaction. Mends are in an order in which they can be
    run.
    """

    kind: Kind
    name: str
    expected: str
    found: str
    mend: str
    severity: Severity = "error"

    def __str__(self) -> str:
        mend = self.mend.replace("\n", "\n    ")
        return f"{self.severity}: {self.kind} {self.name}: expected {self.expected}, found {self.found}\n    {mend}"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one `verify`. ``version`` is the recorded schema version; None when this role may not read it."""

    table: TableName
    version: int | None
    differences: tuple[Difference, ...]

    @property
    def errors(self) -> tuple[Difference, ...]:
        """The differences that must be fixed."""
        return tuple(difference for difference in self.differences if difference.severity == "error")

    @property
    def warnings(self) -> tuple[Difference, ...]:
        """The differences a person should know of."""
        return tuple(difference for difference in self.differences if difference.severity == "warning")

    @property
    def ok(self) -> bool:
        """True when the table is as it must be; warnings do not count."""
        return not self.errors

    def raise_if_different(self) -> None:
        """Raise `SchemaMismatch`, with every error in its message, unless the report is ``ok``."""
        if not self.ok:
            raise SchemaMismatch(self.table, tuple(str(difference) for difference in self.errors))

    def __str__(self) -> str:
        version = "unknown" if self.version is None else self.version
        if not self.differences:
            return f"{self.table} is as expected (schema version {version})"
        counted = f"{len(self.errors)} errors, {len(self.warnings)} warnings"
        lines = "\n".join(str(difference) for difference in self.differences)
        return f"{self.table} (schema version {version}): {counted}\n{lines}"


class Step(Protocol):
    """One step between schema versions, from ``version - 1`` to ``version`` and back."""

    @property
    def version(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def locks(self) -> str:
        """The locks that the step up holds, in words."""
        ...

    def up(self, table: str | TableName) -> str:
        """Return the SQL of the step; it records the new version itself."""
        ...

    def down(self, table: str | TableName) -> str:
        """Return the SQL that undoes the step."""
        ...


class SchemaTools(Protocol):
    """Makes, checks and changes the outbox tables of one kind of store.

    A ``connection`` is one of the store's own driver; another is refused with `SchemaError`. None of this closes it.
    Where DDL is transactional a step happens or does not; elsewhere every step can be repeated, and its version is
    recorded last.
    """

    def migrations(self) -> Sequence[Step]:
        """Return every step, in order. The version of the last is the one this library needs."""
        ...

    def script(
        self,
        table: str | TableName,
        *,
        from_version: int = ...,
        to_version: int = ...,
        transaction: bool = ...,
    ) -> str:
        """Return the SQL that takes a table from one version to another: by default from none to the current one."""
        ...

    def roles(
        self,
        table: str | TableName,
        *,
        migrator: str | None = ...,
        producer: str | None = ...,
        relay: str | None = ...,
        viewer: str | None = ...,
        operator: str | None = ...,
    ) -> str:
        """Return the SQL that grants existing roles their part of one table, and nothing more."""
        ...

    async def create(
        self, connection: Any, /, table: str | TableName, *, lock_timeout: float = ..., wait: float = ...
    ) -> bool:
        """Create a table at the current version; False when it is there already. Safe to call concurrently."""
        ...

    async def verify(self, connection: Any, /, table: str | TableName) -> Report:
        """Compare a table with what this library needs. Changes nothing."""
        ...

    async def version(self, connection: Any, /, table: str | TableName) -> int:
        """Read the recorded schema version; 0 when there is none."""
        ...

    async def require(self, connection: Any, /, table: str | TableName) -> int:
        """Raise `SchemaError` unless this library works on the table; returns the recorded version. Cheap."""
        ...

    async def upgrade(
        self,
        connection: Any,
        /,
        table: str | TableName,
        *,
        to: int = ...,
        lock_timeout: float = ...,
        wait: float = ...,
    ) -> Sequence[Step]:
        """Apply the steps a table lacks, and return them; a missing table is made. Safe to call concurrently."""
        ...

    async def downgrade(
        self,
        connection: Any,
        /,
        table: str | TableName,
        *,
        to: int,
        drop_messages: bool = ...,
        lock_timeout: float = ...,
        wait: float = ...,
    ) -> Sequence[Step]:
        """Undo the steps above a version, newest first, and return them. Version 0 drops the table, which is refused
        while it holds messages unless ``drop_messages`` is set."""
        ...
