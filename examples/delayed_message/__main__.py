"""A reminder is written together with the cart it is about, and is delivered later."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import nats
from nats.js.api import DeliverPolicy

from examples.environment import address
from outbox_core import DispatchedMessage, Message, Outbox, Relay, schema
from outbox_nats import NatsDispatcher, from_msg

TABLE: Final = "carts_outbox"
REMIND_AFTER: Final = timedelta(seconds=2)

outbox = Outbox(TABLE)


async def fill_cart(connection: asyncpg.Connection, cart: UUID) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO carts VALUES ($1)", cart)
        # Another topic and no key: a delayed message would hold back those behind it that have the same key.
        await outbox.enqueue(connection, Message("carts.cart.filled.v1", {"cart": cart}))
        await outbox.enqueue(connection, Message("carts.reminder.due.v1", {"cart": cart}, delay=REMIND_AFTER))


async def main() -> None:
    database_url, nats_url = address("OUTBOX_DATABASE_URL"), address("NATS_URL")
    await schema.upgrade(database_url, TABLE)
    connection = await asyncpg.connect(database_url)
    await connection.execute("CREATE TABLE IF NOT EXISTS carts (id uuid PRIMARY KEY)")
    broker: Any = await nats.connect(nats_url, max_reconnect_attempts=1)
    stream = broker.jetstream()
    await stream.add_stream(name="carts", subjects=["carts.>"])
    subscription = await stream.subscribe("carts.>", deliver_policy=DeliverPolicy.NEW)

    async def arrival(cart: UUID) -> DispatchedMessage:
        while True:
            message = from_msg(await subscription.next_msg(timeout=30))
            if message.json()["cart"] == str(cart):
                return message

    cart = uuid4()
    relay = Relay(database_url, table=TABLE, dispatcher=NatsDispatcher(url=nats_url))
    async with asyncio.timeout(60), relay:
        began = asyncio.get_running_loop().time()
        await fill_cart(connection, cart)
        filled = await arrival(cart)
        reminder = await arrival(cart)
        waited = asyncio.get_running_loop().time() - began
    await broker.close()
    await connection.close()

    assert (filled.meta.topic, reminder.meta.topic) == ("carts.cart.filled.v1", "carts.reminder.due.v1")
    assert waited >= REMIND_AFTER.total_seconds(), f"the reminder came after {waited:.2f} s"
    print(f"the reminder came {waited:.1f} s after the cart was filled")


if __name__ == "__main__":
    asyncio.run(main())
