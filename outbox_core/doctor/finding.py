"""A finding: what was seen, why it matters, and what to run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outbox_core.table import TableName


class Severity(StrEnum):
    """How bad it is, from good to bad."""

    OK = "ok"
    """Looked at, and as it should be."""
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
    """One thing that was looked at.

    ``check`` is a stable name such as ``horizon``, ``table`` None when it is about more than one table. ``run`` has
    commands and SQL statements that look closer or mend it, none where nothing needs to be done.
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
