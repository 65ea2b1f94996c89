"""The contract of a store's checks, which `outbox_core.doctor` runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from outbox_core.finding import Finding, Limits

if TYPE_CHECKING:
    from outbox_core.table import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The settings that a store's checks depend on. Durations are seconds."""

    timeout: float
    """The longest time of connecting, and of one statement."""
    takeover: float
    elections: bool
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Check:
    """A named check of doctor. ``run`` only reads, and raises `OutboxError` or TimeoutError when it cannot be made.

    A ``decisive`` check that fails, or raises `Unusable`, ends the checks of its table.
    """

    name: str
    run: Callable[[], Awaitable[list[Finding]]]
    decisive: bool = False


class Unusable(Exception):
    """Raised by a decisive check whose ``findings`` leave nothing to the checks after it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("the table cannot be used")
        self.findings = list(findings)


class Unreachable(Exception):
    """Raised when no session for the checks can be opened: what is wrong, without secrets, and what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class StoreChecks(Protocol):
    """The checks of one database, on a session of their own. They run one at a time, in the order given."""

    @property
    def server(self) -> Sequence[Check]:
        """The checks of the server and the way to it."""
        ...

    def table(self, table: TableName) -> Sequence[Check]:
        """Return the checks of one table."""
        ...

    async def topics(self, table: TableName) -> list[str]:
        """Read which topics are in use, from a few messages: a sample, not all."""
        ...
