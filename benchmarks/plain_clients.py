"""The brokers' own clients at their best, with nothing but messages to send: the rate that no relay can pass for long.

Messages are made ready before the clock starts, down to what the client's lowest public call takes. Then as many as the
window holds are on their way at any time, each acknowledgement makes room for the next message, and all are awaited.
What the adapters do to make a client quick is done here too: one inbox for JetStream's acknowledgements instead of a
request for each message, AMQP below aio-pika's messages with writes gathered, large batches for Kafka.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import aio_pika
import nats
from aiokafka import AIOKafkaProducer
from aiormq import spec
from nats.aio.client import Client as NatsClient

from outbox_amqp.client import Wires
from outbox_core.headers import to_headers
from outbox_core.meta import DispatchedMessage

TOPIC = "shop.order.placed.v1"
STREAM = "SHOP"


class Client(Protocol):
    """A connected client of one broker."""

    def ready(self, message: DispatchedMessage, /) -> Any:
        """The message as the client takes it, with the very bytes that the adapter sends."""
        ...

    async def publish(self, messages: Sequence[Any], window: int, /) -> None:
        """Send messages made ready, so many on their way at a time; return when each has been acknowledged."""
        ...


class Kafka:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def ready(self, message: DispatchedMessage, /) -> Any:
        headers = [(name, value.encode()) for name, value in to_headers(message).items()]
        return str(message.meta.event_id).encode(), message.payload, headers

    async def publish(self, messages: Sequence[Any], window: int, /) -> None:
        sent: deque[asyncio.Future[Any]] = deque()
        for key, payload, headers in messages:
            if len(sent) >= window:
                await sent.popleft()
            sent.append(await self._producer.send(TOPIC, payload, key, headers=headers))
        for future in sent:
            await future


class JetStream:
    """Publishes with a place in one inbox to answer to, as JetStream's protocol has it."""

    def __init__(self, connection: NatsClient) -> None:
        self._connection = connection
        self._inbox = f"{connection.new_inbox()}."
        self._open = 0
        self._refused: list[bytes] = []
        self._answer = asyncio.Event()

    async def start(self) -> JetStream:
        await self._connection.subscribe(f"{self._inbox}*", cb=self._answered)
        return self

    def ready(self, message: DispatchedMessage, /) -> Any:
        return message.payload, to_headers(message) | {"Nats-Msg-Id": str(message.meta.event_id)}

    async def publish(self, messages: Sequence[Any], window: int, /) -> None:
        for number, (payload, headers) in enumerate(messages):
            await self._fewer_than(window)
            self._open += 1
            await self._connection.publish(TOPIC, payload, reply=f"{self._inbox}{number}", headers=headers)
        await self._fewer_than(1)
        if self._refused:
            raise RuntimeError(f"{len(self._refused)} messages were not stored: {self._refused[0]!r}")

    async def _fewer_than(self, window: int) -> None:
        while self._open >= window:
            self._answer.clear()
            await self._answer.wait()

    async def _answered(self, answer: Any) -> None:
        self._open -= 1
        if not json.loads(answer.data or b"{}").get("seq"):
            self._refused.append(answer.data)
        self._answer.set()


class RabbitMQ:
    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def ready(self, message: DispatchedMessage, /) -> Any:
        headers: dict[str, Any] = dict(to_headers(message))
        properties = spec.Basic.Properties(
            headers=headers,
            content_type=headers["content-type"],
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT.value,
            message_id=headers["event-id"],
            timestamp=message.meta.created_at,
            message_type=TOPIC,
        )
        return message.payload, properties

    async def publish(self, messages: Sequence[Any], window: int, /) -> None:
        """As many tasks as the window holds, for the client's call returns when the message is confirmed."""
        waiting = iter(messages)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(window, len(messages))):
                tasks.create_task(self._publish_all(waiting))

    async def _publish_all(self, waiting: Iterator[Any]) -> None:
        for body, properties in waiting:
            confirmation = await self._channel.basic_publish(
                body, routing_key=TOPIC, properties=properties, mandatory=True, wait=False
            )
            if not isinstance(confirmation, spec.Basic.Ack):
                raise TypeError(f"not confirmed: {confirmation}")


@asynccontextmanager
async def kafka(address: str) -> AsyncGenerator[Client]:
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=address, acks="all", enable_idempotence=True, max_batch_size=256 * 1024
    )
    await producer.start()
    try:
        yield Kafka(producer)
    finally:
        await producer.stop()


@asynccontextmanager
async def jetstream(address: str) -> AsyncGenerator[Client]:
    connection = await nats.connect(address)
    try:
        yield await JetStream(connection).start()
    finally:
        await connection.close()


@asynccontextmanager
async def rabbitmq(address: str) -> AsyncGenerator[Client]:
    connection = aio_pika.Connection(aio_pika.connection.make_url(address))
    connection.kwargs["transport_factory"] = Wires(tls=False)
    await connection.connect()
    try:
        channel = connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.initialize()
        yield RabbitMQ(await channel.get_underlay_channel())
    finally:
        await connection.close()


PUBLISHERS = {"kafka": kafka, "nats": jetstream, "amqp": rabbitmq}
