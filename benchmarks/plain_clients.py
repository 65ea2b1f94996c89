"""The brokers' own clients, used as anybody would who has nothing but them: windows of messages, every ack awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import aio_pika
import nats
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiormq import spec
from nats.js.api import ConsumerConfig, DeliverPolicy

from outbox_core.headers import to_headers
from outbox_core.meta import DispatchedMessage

TOPIC = "shop.order.placed.v1"
STREAM = "SHOP"

Ready = tuple[str, dict[str, str], bytes]
"""An event id, the headers and the payload: the very bytes that the adapter sends."""
Seen = Callable[[str], None]
"""Told the event id of each message that a consumer received."""


def ready(message: DispatchedMessage) -> Ready:
    return str(message.meta.event_id), to_headers(message), message.payload


class Client(Protocol):
    """A connected client of one broker."""

    async def publish(self, window: Sequence[Ready], /) -> None:
        """Send a window at once and return when each of its messages has been acknowledged."""
        ...


@asynccontextmanager
async def kafka(address: str) -> AsyncGenerator[Client]:
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=address, acks="all", enable_idempotence=True, max_batch_size=256 * 1024
    )
    await producer.start()

    class Kafka:
        async def publish(self, window: Sequence[Ready], /) -> None:
            futures: list[Awaitable[Any]] = []
            for event_id, headers, payload in window:
                encoded = [(name, value.encode()) for name, value in headers.items()]
                futures.append(await producer.send(TOPIC, payload, event_id.encode(), headers=encoded))
            await asyncio.gather(*futures)

    try:
        yield Kafka()
    finally:
        await producer.stop()


@asynccontextmanager
async def jetstream(address: str) -> AsyncGenerator[Client]:
    connection = await nats.connect(address)
    stream = connection.jetstream()

    class Nats:
        async def publish(self, window: Sequence[Ready], /) -> None:
            await asyncio.gather(
                *(
                    stream.publish(TOPIC, payload, timeout=30, headers={**headers, "Nats-Msg-Id": event_id})
                    for event_id, headers, payload in window
                )
            )

    try:
        yield Nats()
    finally:
        await connection.close()


@asynccontextmanager
async def rabbitmq(address: str) -> AsyncGenerator[Client]:
    connection = await aio_pika.connect(address)
    channel = await connection.channel(publisher_confirms=True, on_return_raises=True)

    async def one(event_id: str, headers: dict[str, str], payload: bytes) -> None:
        message = aio_pika.Message(
            payload,
            headers=dict(headers),
            content_type=headers["content-type"],
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=event_id,
            type=TOPIC,
        )
        confirmation = await channel.default_exchange.publish(message, TOPIC, mandatory=True)
        if not isinstance(confirmation, spec.Basic.Ack):
            raise TypeError(f"not confirmed: {confirmation}")

    class Rabbit:
        async def publish(self, window: Sequence[Ready], /) -> None:
            await asyncio.gather(*(one(*message) for message in window))

    try:
        yield Rabbit()
    finally:
        await connection.close()


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


PUBLISHERS = {"kafka": kafka, "nats": jetstream, "amqp": rabbitmq}
CONSUMERS = {"kafka": kafka_consumer, "nats": jetstream_consumer, "amqp": rabbitmq_consumer}
