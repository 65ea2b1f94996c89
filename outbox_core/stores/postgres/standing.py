"""The answer to ``status.sql`` as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from outbox_core.status import Count, Leadership, Look, TableStatus

if TYPE_CHECKING:
    from outbox_core.table import TableName


def table_status(table: TableName, look: Look, row: Mapping[str, Any]) -> TableStatus:
    """Report what was found, as deep as ``look`` goes."""
    due = Count.up_to(look.limit, row["due"])
    waiting = Count.up_to(look.limit, row["waiting"])
    # Rows come and go between the parts of no statement: one snapshot answers them all.
    every_due = row["due_looked_into"] == row["due"]
    everything = every_due and row["waiting_looked_into"] == row["waiting"]
    return TableStatus(
        table=table,
        at=row["at"],
        pending=due + waiting,
        waiting=waiting,
        locked=Count(row["locked"], every_due),
        dead=Count.up_to(look.limit, row["dead"]),
        away=Count(row["away"], everything),
        away_topics=tuple(row["away_topics"]),
        oldest_pending_age=row["oldest_pending_age"],
        published_recently=Count.up_to(look.limit, row["published_recently"]),
        written=row["written"],
        leader=_leadership(row),
    )


def _leadership(row: Mapping[str, Any]) -> Leadership | None:
    if row["holder"] is None or row["heartbeat_age"] is None:
        return None
    return Leadership(row["term"], row["holder"], max(row["heartbeat_age"], 0.0))
