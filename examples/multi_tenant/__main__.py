"""One table for all tenants: each message says whose it is, and no tenant waits for another one's messages."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import nats
from nats.js.api import DeliverPolicy

from examples.environment import address
from outbox_core import Message, Outbox, Relay, schema
from outbox_core.dead_letters import DeadLetters
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from outbox_nats import NatsDispatcher, from_msg

TABLE: Final = "invoices_outbox"
TOPIC: Final = "invoices.invoice.issued.v1"
KEY: Final = "invoices"

outbox = Outbox(TABLE)


async def issue(
    connection: asyncpg.Connection, tenant: UUID, number: int, *, embargo: timedelta | None = None
) -> None:
    """Tenants count their invoices from 1, so numbers and keys mean something only together with the tenant."""
    async with connection.transaction():
        await connection.execute("INSERT INTO invoices VALUES ($1, $2)", tenant, number)
        await outbox.enqueue(
            connection, Message(TOPIC, {"number": number}, tenant_id=tenant, key=KEY, delay=embargo)
        )


async def main() -> None:
    database_url, nats_url = address("OUTBOX_DATABASE_URL"), address("NATS_URL")
    acme, globex = uuid4(), uuid4()
    await schema.upgrade(database_url, TABLE)
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS invoices (tenant uuid, number bigint, PRIMARY KEY (tenant, number))"
    )
    broker: Any = await nats.connect(nats_url, max_reconnect_attempts=1)
    stream = broker.jetstream()
    await stream.add_stream(name="invoices", subjects=["invoices.>"])
    subscription = await stream.subscribe(TOPIC, deliver_policy=DeliverPolicy.NEW)
    ledgers: dict[UUID, list[int]] = defaultdict(list)

    async def receive_until(tenant: UUID, count: int) -> None:
        while len(ledgers[tenant]) < count:
            message = from_msg(await subscription.next_msg(timeout=30))
            ledgers[message.meta.tenant_id].append(message.json()["number"])

    relay = Relay(database_url, table=TABLE, dispatcher=NatsDispatcher(url=nats_url))
    async with asyncio.timeout(60), relay:
        # The first of acme's is embargoed and holds the others of its key, for acme alone.
        await issue(connection, acme, 1, embargo=timedelta(hours=1))
        await issue(connection, acme, 2)
        for number in (1, 2, 3):
            await issue(connection, globex, number)
        await receive_until(globex, 3)
        assert ledgers[acme] == [], ledgers
        waiting = await outbox.pending(connection, tenant_id=acme)

        await lift_embargo(database_url, acme)
        await receive_until(acme, 2)
    await broker.close()
    await connection.close()

    assert len(waiting) == 2, waiting
    assert (ledgers[acme], ledgers[globex]) == ([1, 2], [1, 2, 3]), ledgers
    print("globex got invoices 1, 2, 3 while acme's waited behind their embargo; then acme got 1, 2")


async def lift_embargo(database_url: str, tenant: UUID) -> None:
    """What `outbox dead release invoices --tenant …` does: the first message of the tenant's key is due now."""
    async with PostgresAdminStore.connect(database_url, TABLE) as admin_store:
        released = await DeadLetters(admin_store, TABLE).release(
            KEY, tenant_id=tenant, actor="the example", reason="the embargo is over"
        )
    assert released is not None


if __name__ == "__main__":
    asyncio.run(main())
