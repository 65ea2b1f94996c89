"""A consumer that gives loyalty points for orders, once for each, however often its event comes."""

from __future__ import annotations

import asyncpg

from outbox_core import DispatchedMessage

CONSUMER = "loyalty"
"""Each consumer has its own memory: what one has worked on is still new to the others."""

TABLES = """
CREATE TABLE IF NOT EXISTS processed_events (
    consumer text NOT NULL,
    event_id uuid NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id)
);
CREATE TABLE IF NOT EXISTS loyalty_points (
    customer text PRIMARY KEY,
    points bigint NOT NULL
)
"""

# Of two consumers with the same event at the same time, the second waits here until the first has committed.
REMEMBER = (
    "INSERT INTO processed_events (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING true"
)

ADD_POINTS = """
INSERT INTO loyalty_points (customer, points) VALUES ($1, $2)
ON CONFLICT (customer) DO UPDATE SET points = loyalty_points.points + excluded.points
"""


async def handle(connection: asyncpg.Connection, message: DispatchedMessage) -> bool:
    """Whether the event was new. Its effect and the memory of it are one transaction: neither is there alone."""
    order = message.json()
    async with connection.transaction():
        new = await connection.fetchval(REMEMBER, CONSUMER, message.meta.event_id)
        if not new:
            return False
        await connection.execute(ADD_POINTS, order["customer"], order["points"])
    return True
