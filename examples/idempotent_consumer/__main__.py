"""Orders are published, the consumer crashes before it confirms them, and gets them all again."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import uuid4

import asyncpg
import nats
from nats.js.api import DeliverPolicy

from examples.environment import address
from examples.idempotent_consumer.consumer import TABLES, handle
from outbox_core import Message, Outbox, Relay, schema
from outbox_nats import NatsDispatcher, from_msg

TABLE: Final = "loyalty_outbox"
TOPIC: Final = "loyalty.order.paid.v1"
ORDERS: Final = 5

outbox = Outbox(TABLE)


async def main() -> None:
    database_url, nats_url = address("OUTBOX_DATABASE_URL"), address("NATS_URL")
    customer = f"customer-{uuid4()}"
    await schema.upgrade(database_url, TABLE)
    connection = await asyncpg.connect(database_url)
    await connection.execute(TABLES)
    broker: Any = await nats.connect(nats_url, max_reconnect_attempts=1)
    stream = broker.jetstream()
    await stream.add_stream(name="loyalty", subjects=["loyalty.>"])
    subscription = await stream.subscribe(TOPIC, manual_ack=True, deliver_policy=DeliverPolicy.NEW)

    async with connection.transaction():
        await outbox.enqueue_many(
            connection, [Message(TOPIC, {"customer": customer, "points": 10}) for _ in range(ORDERS)]
        )

    new = repeated = 0
    relay = Relay(database_url, table=TABLE, dispatcher=NatsDispatcher(url=nats_url))
    async with asyncio.timeout(60), relay:
        while repeated < ORDERS:
            msg = await subscription.next_msg(timeout=30)
            if await handle(connection, from_msg(msg)):
                new += 1
                # A crash between the commit and the confirmation: the broker does not know, and delivers again.
                await msg.nak()
            else:
                repeated += 1
                await msg.ack()

    points = await connection.fetchval("SELECT points FROM loyalty_points WHERE customer = $1", customer)
    await broker.close()
    await connection.close()
    assert (new, repeated, points) == (ORDERS, ORDERS, 10 * ORDERS), (new, repeated, points)
    print(f"{new + repeated} deliveries of {ORDERS} events: {points} points, as if each had come once")


if __name__ == "__main__":
    asyncio.run(main())
