"""Checks for sessions and slots that keep old row versions from being removed: a queue suffers within minutes."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from outbox_core.durations import format_duration
from outbox_core.finding import Finding, Severity

if TYPE_CHECKING:
    from outbox_core.stores.postgres.doctor.case import Case

_WHY: Final = (
    "Rows that were claimed and published since it began cannot be vacuumed: claims read past more and more of their"
    " remains, and the table grows."
)
_WHY_SLOT: Final = (
    "The server keeps its log, and for some slots old rows too, until whoever reads the slot comes back: the disk"
    " fills up."
)


async def check_horizon(case: Case) -> list[Finding]:
    """Check for long transactions, sessions idle in one, prepared ones and replication slots without a reader."""
    text = files("outbox_core.stores.postgres").joinpath("doctor/horizon.sql").read_text(encoding="utf-8")
    rows = await case.connection.fetch(text, case.options.limits.transaction_age)
    if not rows:
        return [Finding("horizon", Severity.OK, "nothing holds old rows back")]
    return [_finding(row["kind"], row["name"], row["detail"], row["seconds"], row["fix"]) for row in rows]


def _finding(kind: str, name: str, detail: str, seconds: float | None, fix: str) -> Finding:
    age = "" if seconds is None else f" for {format_duration(round(seconds))}"
    by = f" ({detail})" if detail else ""
    why = _WHY
    match kind:
        case "transaction":
            title = f"the session {name}{by} has been in one transaction{age}"
        case "idle":
            title = f"the session {name}{by} has been idle in transaction{age}"
        case "prepared":
            title = f"the prepared transaction {name!r}{by} has been open{age}"
        case _:
            title, why = f"nobody reads the replication slot {name}{by}", _WHY_SLOT
    return Finding("horizon", Severity.WARNING, title, why, (fix,))
