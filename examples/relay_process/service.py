"""The service: it writes parcels and their events, and leaves the delivery to a relay it knows nothing about."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import nats

from examples.environment import address
from outbox_core import Message, Outbox

TABLE: Final = "parcels_outbox"
TOPIC: Final = "parcels.parcel.sent.v1"

outbox = Outbox(TABLE)


async def prepare(connection: asyncpg.Connection, nats_url: str) -> None:
    """The service's own table, and the stream that keeps its events. The outbox table is made by `outbox schema`."""
    await connection.execute("CREATE TABLE IF NOT EXISTS parcels (id uuid PRIMARY KEY)")
    broker: Any = await nats.connect(nats_url, max_reconnect_attempts=1)
    await broker.jetstream().add_stream(name="parcels", subjects=["parcels.>"])
    await broker.close()


async def send(connection: asyncpg.Connection) -> UUID:
    parcel = uuid4()
    async with connection.transaction():
        await connection.execute("INSERT INTO parcels VALUES ($1)", parcel)
        await outbox.enqueue(connection, Message(TOPIC, {"parcel": parcel}, key=str(parcel)))
    return parcel


async def main() -> None:
    connection = await asyncpg.connect(address("OUTBOX_DATABASE_URL"))
    await prepare(connection, address("NATS_URL"))
    while True:
        print(f"sent {await send(connection)}", flush=True)
        await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(main())
