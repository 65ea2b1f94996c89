"""How a table in memory stands."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from outbox_core.record import State
from outbox_core.status import RECENTLY, Count, Leadership, Look, TableStatus

if TYPE_CHECKING:
    from outbox_core.stores.memory import database
    from outbox_core.table import TableName

_AWAY: Final = re.compile(r"PROVIDER\.(UNAVAILABLE|REFUSED)\b")
_AWAY_TOPICS: Final = 5


def table_status(
    table: TableName,
    memory: database.MemoryTable,
    leadership: database.Leadership,
    look: Look,
    now: datetime,
) -> TableStatus:
    """Report the status; counts stop at the limit of ``look``, as they do in a database."""
    rows = list(memory.rows.values())
    pending = sorted(
        (row for row in rows if row.state in (State.PENDING, State.IN_FLIGHT)),
        key=lambda row: (row.available_at, row.sequence),
    )
    due = [row for row in pending if row.available_at <= now]
    waiting = [row for row in pending if row.available_at > now]
    first = due[: look.depth] + waiting[: look.depth]
    away = [row for row in first if row.lock_token is None and _AWAY.match(row.last_error or "")]
    since = [
        row.available_at if row.last_error is None else row.created_at
        for row in first
        if row.available_at <= now or row.last_error is not None
    ]
    recently = now - timedelta(seconds=RECENTLY)
    every_due, everything = len(due) <= look.depth, max(len(due), len(waiting)) <= look.depth
    return TableStatus(
        table=table,
        at=now,
        pending=Count.up_to(look.limit, len(due)) + Count.up_to(look.limit, len(waiting)),
        waiting=Count.up_to(look.limit, len(waiting)),
        locked=Count(sum(row.lock_token is not None for row in first), every_due),
        dead=Count.up_to(look.limit, sum(row.dead_at is not None for row in rows)),
        away=Count(len(away), everything),
        away_topics=tuple(sorted({row.record.topic for row in away})[:_AWAY_TOPICS]),
        oldest_pending_age=(now - min(min(since), now)).total_seconds() if since else None,
        published_recently=Count.up_to(
            look.limit, sum(row.published_at is not None and row.published_at > recently for row in rows)
        ),
        written=memory.drawn,
        leader=_leader(leadership, now),
    )


def _leader(leadership: database.Leadership, now: datetime) -> Leadership | None:
    if leadership.session is None or leadership.heartbeat_at is None:
        return None
    age = max((now - leadership.heartbeat_at).total_seconds(), 0.0)
    return Leadership(leadership.term, f"memory:{id(leadership.session):x}", age)
