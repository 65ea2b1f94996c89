"""Checks that a relay leads the table and sends its heartbeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outbox_core.durations import format_duration
from outbox_core.finding import Finding, Severity
from outbox_core.stores.postgres.advisory import lock_key
from outbox_core.stores.postgres.sql import render

if TYPE_CHECKING:
    from outbox_core.stores.postgres.doctor.case import TableCase

_MANY: Final = 10_000
_PATIENCE: Final = 30.0
"""Seconds a message may have been due before it counts as left lying."""


async def check_leader(case: TableCase) -> list[Finding]:
    """Check that a relay leads the table and that its heartbeat is recent."""
    table, takeover = case.table, case.options.takeover
    row = await case.connection.fetchrow(
        render("doctor/leader.sql", table), lock_key(f"outbox:{table}"), _PATIENCE
    )
    if row is None:
        return [
            Finding(
                "leader",
                Severity.ERROR,
                "the table has no row in outbox_leader",
                "No relay can come to lead it.",
                (f"outbox schema verify --table {table}",),
                table,
            )
        ]
    due = f"more than {_MANY}" if row["due"] > _MANY else str(row["due"])
    lying = f"; {due} messages have been due for more than {format_duration(_PATIENCE)}" if row["due"] else ""
    severity = Severity.ERROR if row["due"] else Severity.WARNING
    if row["holder"] is None or row["heartbeat_age"] is None:
        if not case.options.elections:
            return [Finding("leader", Severity.NOTE, "relays share the table and nobody leads", table=table)]
        return [
            Finding(
                "leader",
                severity,
                f"nobody leads{lying}",
                "No relay is running for this table, or none can reach the database.",
                (f"outbox relay --table {table}", f"outbox status --table {table}"),
                table,
            )
        ]
    age = format_duration(round(max(row["heartbeat_age"], 0.0), 1))
    if row["heartbeat_age"] > takeover:
        return [
            Finding(
                "leader",
                severity,
                f"the leader {row['holder']} (term {row['term']}) was last heard of {age} ago{lying}",
                "It is gone or frozen, and no other relay is there to take over.",
                (f"outbox relay --table {table}", f"outbox status --table {table}"),
                table,
            )
        ]
    locked = "" if row["locks"] else ", by its heartbeat alone"
    title = f"{row['holder']} leads in term {row['term']}, heard of {age} ago{locked}"
    if row["due"]:
        return [
            Finding(
                "leader",
                Severity.WARNING,
                f"{title}{lying}",
                "The relay is behind, or a key or a destination holds them up.",
                (f"outbox status --table {table}", f"outbox pending --table {table}"),
                table,
            )
        ]
    return [Finding("leader", Severity.OK, title, table=table)]
