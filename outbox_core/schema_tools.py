"""What `verify` found: each difference with what was expected, what is there, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

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
        """The differences that must be mended."""
        return tuple(difference for difference in self.differences if difference.severity == "error")

    @property
    def warnings(self) -> tuple[Difference, ...]:
        """The differences somebody should know of."""
        return tuple(difference for difference in self.differences if difference.severity == "warning")

    @property
    def ok(self) -> bool:
        """Whether the table is as it must be; warnings do not count."""
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
