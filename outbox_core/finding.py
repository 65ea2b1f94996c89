"""A finding of `outbox_core.doctor`: what was seen, why it matters, what to run; and the limits of what is normal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from outbox_core.errors import ConfigError

if TYPE_CHECKING:
    from outbox_core.table import TableName


class Severity(StrEnum):
    """The severity of a finding, from good to bad."""

    OK = "ok"
    """Checked, and as it should be."""
    NOTE = "note"
    """Good to know; nothing needs to be done."""
    WARNING = "warning"
    """Messages are delivered, but something works less well than it could, or soon will."""
    ERROR = "error"
    """Messages are not delivered, or a guarantee does not hold."""

    @property
    def rank(self) -> int:
        """A number that grows with the severity."""
        return _ORDER.index(self)


_ORDER: Final = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    ``check`` is a stable name such as ``horizon``, ``table`` None when it is about more than one table. ``run`` has
    commands and SQL statements that show more or fix it, none where nothing needs to be done.
    """

    check: str
    severity: Severity
    title: str
    why: str = ""
    run: tuple[str, ...] = ()
    table: TableName | None = None

    def __str__(self) -> str:
        place = "" if self.table is None else f"{self.table}: "
        lines = [f"{self.severity.value}: {self.check}: {place}{self.title}"]
        if self.why:
            lines.append(f"    {self.why}")
        lines += [f"    > {line}" for command in self.run for line in command.splitlines()]
        return "\n".join(lines)


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity among the findings; ok when there are none."""
    return max((finding.severity for finding in findings), key=lambda each: each.rank, default=Severity.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of what is normal. Durations are seconds."""

    transaction_age: float = 300.0
    """The longest transaction, prepared ones included."""
    clock_offset: float = 1.0
    """Between this host and the database, beyond what the round trip explains."""
    dead_rows: int = 50_000
    """Row versions that wait for a vacuum, where they are also more than the live ones."""
    index_bytes: int = 64 * 2**20
    """Below this size an index is never called bloated."""
    index_growth: float = 8.0
    """An index may have this many times the size it needs."""
    connections: float = 0.9
    """The part of the server's connections that may be in use."""
    wraparound: int = 1_000_000_000
    """Transactions since the table was last frozen."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value: float = getattr(self, name)
            if not value >= 0:
                raise ConfigError(f"{name} must be 0 or more, got {value!r}")
