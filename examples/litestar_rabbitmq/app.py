"""Payments come in over HTTP and are stored with psycopg; their events go to RabbitMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import aio_pika
from litestar import Litestar, post
from litestar.di import NamedDependency
from litestar.exceptions import HTTPException
from litestar.params import JSONBody
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from examples.environment import address
from outbox_amqp import AmqpDispatcher
from outbox_core import Message, Outbox, Relay, schema
from outbox_core.integrations.litestar import AppRelays, BoundOutbox, OutboxPlugin, outbox_transaction

TABLE: Final = "billing_outbox"
TOPIC: Final = "billing.payment.received.v1"
EXCHANGE: Final = "billing"
QUEUE: Final = "billing-ledger"
SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS billing_payments (invoice uuid PRIMARY KEY, cents bigint NOT NULL)"
)

database_url = address("OUTBOX_DATABASE_URL")
amqp_url = address("AMQP_URL")

pool = AsyncConnectionPool(database_url, min_size=1, max_size=10, open=False)
outbox = Outbox(TABLE)
dispatcher = AmqpDispatcher(amqp_url, exchange=EXCHANGE)
relays = AppRelays(Relay(database_url, table=TABLE, dispatcher=dispatcher))


@dataclass
class Payment:
    invoice: UUID
    cents: int


@post("/payments", dependencies={"payments": outbox_transaction(outbox, pool.connection)})
async def receive_payment(
    data: JSONBody[Payment], payments: NamedDependency[BoundOutbox[AsyncConnection]]
) -> Payment:
    await payments.enqueue(Message(TOPIC, data, key=str(data.invoice)))
    await payments.tx.execute("INSERT INTO billing_payments VALUES (%s, %s)", (data.invoice, data.cents))
    if data.cents <= 0:
        # What a handler raises rolls back the payment and its event.
        raise HTTPException("nothing was paid", status_code=422)
    return data


@asynccontextmanager
async def prepared(_: Litestar) -> AsyncIterator[None]:
    """Tables and queue, so that the example starts on empty servers. Elsewhere migrations and operators make them."""
    await schema.upgrade(database_url, TABLE)
    async with pool:
        async with pool.connection() as connection:
            await connection.execute(SCHEMA)
        await bind_queue()
        yield


async def bind_queue() -> None:
    """A message that no queue takes is not delivered: the relay would keep it and try again."""
    async with await aio_pika.connect(amqp_url) as broker, broker.channel() as channel:
        exchange = await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue(QUEUE, durable=True)
        await queue.bind(exchange, "billing.payment.#")


app = Litestar([receive_payment], lifespan=[prepared], plugins=[OutboxPlugin(relays)])
