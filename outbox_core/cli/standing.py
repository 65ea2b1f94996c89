"""How a table stands, as `outbox status` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.text import Text

from outbox_core.cli.output import Column, drawn_table, shown, visible
from outbox_core.status import Rates, rates

if TYPE_CHECKING:
    from rich.console import RenderableType

    from outbox_core.status import TableStatus

_SILENT_AFTER: Final = 30.0
"""Seconds without a heartbeat after which a leader is called silent, whatever its relay's takeover is."""

COLUMNS: Final = (
    Column("table"),
    Column("in/s", "right"),
    Column("out/s", "right"),
    Column("pending", "right"),
    Column("oldest", "right"),
    Column("in flight", "right"),
    Column("dead", "right"),
    Column("leader"),
    Column("term", "right"),
    Column("breaker"),
)


@dataclass(frozen=True, slots=True)
class Standing:
    """One look, and how fast it went since the one before; without one before, nothing is said of rates."""

    status: TableStatus
    rates: Rates | None = None

    @classmethod
    def since(cls, before: Standing | None, now: TableStatus) -> Standing:
        if before is None or now.at <= before.status.at:
            return cls(now)
        return cls(now, rates(before.status, now))

    @property
    def breaker(self) -> str:
        """``open`` when messages were put off because their destination is away."""
        if not self.status.away.value:
            return "closed"
        return f"open: {', '.join(self.status.away_topics)}"

    @property
    def leader(self) -> str:
        leader = self.status.leader
        if leader is None:
            return "none"
        silent = leader.heartbeat_age > _SILENT_AFTER
        return f"{leader.holder} (silent for {_age(leader.heartbeat_age)})" if silent else leader.holder

    def row(self) -> tuple[object, ...]:
        status = self.status
        return (
            status.table,
            "" if self.rates is None else _rate(self.rates.written),
            "" if self.rates is None else _rate(self.rates.delivered),
            status.pending,
            "" if status.oldest_pending_age is None else _age(status.oldest_pending_age),
            status.locked,
            status.dead,
            self.leader,
            "" if status.leader is None else status.leader.term,
            self.breaker,
        )

    def document(self) -> dict[str, Any]:
        return {name: getattr(self.status, name) for name in self.status.__slots__ if name != "written"} | {
            "rates": self.rates,
            "breaker": "open" if self.status.away.value else "closed",
        }


def drawing(standings: Sequence[Standing], trouble: str) -> RenderableType:
    """The table of a live view, and what keeps it from being up to date."""
    table = drawn_table(COLUMNS, [each.row() for each in standings])
    if trouble:
        return Group(table, Text(f"not up to date: {visible(trouble)}", style="bold red"))
    moment = f"{shown(standings[0].status.at)}, Ctrl-C ends" if standings else ""
    return Group(table, Text(moment, style="dim"))


def _rate(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _age(seconds: float) -> str:
    return shown(timedelta(seconds=round(seconds)))
