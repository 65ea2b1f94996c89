"""Events to observe: every kind once, with values that must never be shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from outbox_core import observer as events
from outbox_core.meta import Meta
from outbox_core.observer import Event
from outbox_core.status import Count, Leadership, TableStatus
from outbox_core.table import TableName

TABLE = TableName.parse("shop.orders_outbox")
TOPIC = "shop.order.placed.v1"
TENANT = UUID("11111111-2222-3333-4444-555555555555")
EVENT_ID = UUID("01890000-0000-7000-8000-000000000001")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LABELS = {"table": "shop.orders_outbox", "topic": TOPIC}


def meta(topic: str = TOPIC, *, age: float = 0.0, traceparent: str | None = TRACEPARENT) -> Meta:
    return Meta(
        table=str(TABLE),
        tenant_id=TENANT,
        topic=topic,
        event_id=EVENT_ID,
        sequence=7,
        attempts=2,
        replays=1,
        key="CANARY-KEY",
        headers={"authorization": "CANARY-HEADER"},
        created_at=datetime.now(UTC) - timedelta(seconds=age),
        traceparent=traceparent,
        tracestate=None if traceparent is None else "vendor=CANARY-STATE",
    )


TWELVE = Count(12)


def status(pending: Count = TWELVE, *, age: float | None = 3.5, leader: bool = True) -> TableStatus:
    return TableStatus(
        table=TABLE,
        at=datetime(2026, 1, 2, tzinfo=UTC),
        pending=pending,
        waiting=Count(2),
        locked=Count(3, exact=False),
        dead=Count(4),
        away=Count(1),
        away_topics=(TOPIC,),
        oldest_pending_age=age,
        published_recently=Count(50),
        written=100,
        leader=Leadership(9, "host:1:abc", 0.5) if leader else None,
    )


def every_event() -> list[Event]:
    message = meta()
    return [
        events.Enqueued(TABLE, TOPIC, EVENT_ID, TENANT, 7, 34, b"\x01\x02"),
        events.Claimed(TABLE, 3, 200, 0.01),
        events.Dispatched(TABLE, [message, message], [0.25, 0.5]),
        events.Published(TABLE, [message]),
        events.Failed(TABLE, message, "TX.TIMEOUT no answer", 1.5, True, 0.5),
        events.Dead(TABLE, message, "PROVIDER.PERMANENT refused", 0.125),
        events.Released(TABLE, 3, "the relay stopped"),
        events.LeaseLost(TABLE, message, "publish"),
        events.LeaderGained(TABLE, 9),
        events.LeaderLost(TABLE, 9, "the relay stopped"),
        events.BreakerOpened(TABLE, "kafka", "PROVIDER.UNAVAILABLE no answer", 1.0),
        events.BreakerClosed(TABLE, "kafka", 12.0),
        events.Reconnecting(TABLE, "the database did not answer", 1.0),
        events.PoolerDetected(TABLE),
        events.SessionEnded(TABLE, 4711),
        events.Cleaned(TABLE, 10, 2, 0.2),
        events.Measured(TABLE, status()),
        events.Replayed(TABLE, 5, "ada", UUID(int=1)),
        events.Discarded(TABLE, 6, "ada", UUID(int=2)),
        events.Stopped(TABLE, datetime(2026, 1, 2, tzinfo=UTC), 1),
    ]


def kinds() -> set[type[Event]]:
    """Every class of the vocabulary."""
    found = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    return set(found) - {Event}
