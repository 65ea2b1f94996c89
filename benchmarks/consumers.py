"""Consumers of each broker, which tell when a message has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import nats
from aiokafka import AIOKafkaConsumer
from nats.js.api import ConsumerConfig, DeliverPolicy

from benchmarks.plain_clients import STREAM, TOPIC

Seen = Callable[[str], None]
"""Told the event id of each message that a consumer received."""


@asynccontextmanager
async def kafka_consumer(address: str, seen: Seen) -> AsyncGenerator[None]:
    consumer: Any = AIOKafkaConsumer(TOPIC, bootstrap_servers=address, auto_offset_reset="latest")
    await consumer.start()
    await consumer.seek_to_end()

    async def read() -> None:
        async for record in consumer:
            seen(dict(record.headers)["event-id"].decode())

    task = asyncio.create_task(read())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await consumer.stop()


@asynccontextmanager
async def jetstream_consumer(address: str, seen: Seen) -> AsyncGenerator[None]:
    connection = await nats.connect(address)

    async def read(message: Any) -> None:
        seen(message.headers["event-id"])

    config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
    await connection.jetstream().subscribe(TOPIC, cb=read, config=config, stream=STREAM)
    try:
        yield
    finally:
        await connection.close()


@asynccontextmanager
async def rabbitmq_consumer(address: str, seen: Seen) -> AsyncGenerator[None]:
    connection = await aio_pika.connect(address)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=1000)
    queue = await channel.get_queue(TOPIC)

    async def read(message: Any) -> None:
        seen(str(message.headers["event-id"]))
        await message.ack()

    await queue.consume(read)
    try:
        yield
    finally:
        await connection.close()


CONSUMERS = {"kafka": kafka_consumer, "nats": jetstream_consumer, "amqp": rabbitmq_consumer}
