"""A place to publish to and to read back from, for each broker.

What is read is what the broker stored, in its order, by the broker's own client and straight from the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import aio_pika
import nats
from aiokafka import AIOKafkaConsumer, TopicPartition
from nats.js.api import ConsumerConfig, DeliverPolicy

from outbox_amqp import AmqpDispatcher
from outbox_core.headers import EVENT_ID
from outbox_kafka import KafkaDispatcher
from outbox_nats import NatsDispatcher
from tests.faults.plan import TOPIC, Broker

PARTITIONS = 3
STREAM = "FAULTS"
EXCHANGE = "faults"
LIVE, WHOLE = "faults.live", "faults.whole"
"""Who reads: while it happens, and once all is quiet. A queue keeps nothing that was read, so each has its own."""
CONNECT_SECONDS = 5
ASK_SECONDS = 1.0
PREFETCH = 500

Seen = tuple[int, int, str]
"""Where a message is in the broker's own count, and its event id."""


class Reader(Protocol):
    """Reads one place from its beginning, or from where another reader stopped."""

    async def some(self) -> list[Seen]:
        """What has come, within a second or so; empty when nothing has."""
        ...

    async def size(self) -> int:
        """How many messages there are to read in all."""
        ...


def dispatcher(broker: Broker, address: str, timeout: float) -> Any:
    """The adapter under test. Any topic but one has no destination."""
    bounds: dict[str, Any] = {"timeout": timeout, "connect_timeout": timeout, "close_timeout": 1.0}
    match broker:
        case "kafka":
            return KafkaDispatcher(f"kafka://{address}", destinations={TOPIC: TOPIC}, **bounds)
        case "nats":
            return NatsDispatcher(address, destinations={TOPIC: TOPIC}, **bounds)
        case "amqp":
            return AmqpDispatcher(address, destinations={TOPIC: (EXCHANGE, TOPIC)}, **bounds)


async def prepare(broker: Broker, address: str, create_topic: Callable[[str], None] | None) -> None:
    """Create the place that messages go to."""
    if broker == "nats":
        async with await nats.connect(address) as client:
            await client.jetstream().add_stream(name=STREAM, subjects=[TOPIC])
    elif broker == "amqp":
        async with await aio_pika.connect(address, timeout=CONNECT_SECONDS) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(EXCHANGE, "fanout", durable=True)
            for name in (LIVE, WHOLE):
                queue = await channel.declare_queue(
                    name, durable=True, arguments={"x-queue-type": "quorum"}, timeout=CONNECT_SECONDS
                )
                await queue.bind(exchange, timeout=CONNECT_SECONDS)
    elif create_topic is not None:
        await asyncio.to_thread(create_topic, TOPIC)


class KafkaReader:
    def __init__(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._consumer = consumer
        self._partitions = partitions

    async def some(self) -> list[Seen]:
        found = await self._consumer.getmany(timeout_ms=int(ASK_SECONDS * 1000), max_records=500)
        return [
            (record.partition, record.offset, dict(record.headers)[EVENT_ID].decode())
            for records in found.values()
            for record in records
        ]

    async def size(self) -> int:
        return sum((await self._consumer.end_offsets(self._partitions)).values())


@asynccontextmanager
async def kafka(address: str, _: str, after: dict[int, int]) -> AsyncIterator[Reader]:
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=address, request_timeout_ms=CONNECT_SECONDS * 1000)
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    await consumer.start()
    try:
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, after.get(partition.partition, -1) + 1)
        yield KafkaReader(consumer, partitions)
    finally:
        async with asyncio.timeout(CONNECT_SECONDS):
            await consumer.stop()


class NatsReader:
    def __init__(self, jetstream: Any, subscription: Any) -> None:
        self._jetstream = jetstream
        self._subscription = subscription

    async def some(self) -> list[Seen]:
        found: list[Seen] = []
        end = time.monotonic() + ASK_SECONDS / 2
        try:
            while not found or time.monotonic() < end:
                message = await self._subscription.next_msg(timeout=0.1 if found else ASK_SECONDS)
                found.append((0, message.metadata.sequence.stream, message.headers[EVENT_ID]))
        except nats.errors.TimeoutError:
            pass
        return found

    async def size(self) -> int:
        return int((await self._jetstream.stream_info(STREAM)).state.messages)


@asynccontextmanager
async def jetstream(address: str, _: str, after: dict[int, int]) -> AsyncIterator[Reader]:
    client = await nats.connect(
        address, allow_reconnect=False, connect_timeout=CONNECT_SECONDS, error_cb=_nothing
    )
    try:
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=after.get(0, 0) + 1
        )
        stream = client.jetstream()
        subscription = await stream.subscribe(TOPIC, stream=STREAM, ordered_consumer=True, config=config)
        yield NatsReader(stream, subscription)
    finally:
        await client.close()


class QueueReader:
    """Messages come as the broker pushes them and are acknowledged once they are handed on, many at a time."""

    def __init__(self, channel: Any, queue: Any, read: int) -> None:
        self._channel = channel
        self._queue = queue
        self._read = read
        self._pushed: asyncio.Queue[Any] = asyncio.Queue()
        self._consuming = False

    async def some(self) -> list[Seen]:
        if not self._consuming:
            self._consuming = True
            await self._queue.consume(self._pushed.put, timeout=CONNECT_SECONDS)
        messages: list[Any] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_SECONDS / 2):
                messages.append(await self._pushed.get())
        while not self._pushed.empty():
            messages.append(self._pushed.get_nowait())
        if messages:
            await messages[-1].ack(multiple=True)
        first = self._read + 1
        self._read += len(messages)
        return [(0, first + at, str(each.headers[EVENT_ID])) for at, each in enumerate(messages)]

    async def size(self) -> int:
        """To be asked before the first read: what is on its way here is not counted."""
        declared = await self._channel.declare_queue(self._queue.name, passive=True, timeout=CONNECT_SECONDS)
        return self._read + int(declared.declaration_result.message_count)


@asynccontextmanager
async def rabbitmq(address: str, name: str, after: dict[int, int]) -> AsyncIterator[Reader]:
    connection = await aio_pika.connect(address, timeout=CONNECT_SECONDS)
    try:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH, timeout=CONNECT_SECONDS)
        yield QueueReader(channel, await channel.get_queue(name), after.get(0, 0))
    finally:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.close()


async def _nothing(error: Exception) -> None:
    """The reader itself fails; the client's default would also print it."""


READERS: dict[str, Callable[[str, str, dict[int, int]], AbstractAsyncContextManager[Reader]]] = {
    "kafka": kafka,
    "nats": jetstream,
    "amqp": rabbitmq,
}


async def read_all(broker: Broker, address: str, within: float = 120.0) -> list[str]:
    """Every event id the broker has, in its order, repetitions included."""
    found: list[Seen] = []
    async with asyncio.timeout(within), READERS[broker](address, WHOLE, {}) as reader:
        size = await reader.size()
        while len(found) < size:
            found += await reader.some()
    return [event_id for _, _, event_id in found]
