"""Reading back from each broker what it stored, in its order, by its own client and straight from the server.

The `READERS` keep their own count of what they have read; those of `tests.faults.groups` leave that to the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import aio_pika
import nats
from aiokafka import AIOKafkaConsumer, TopicPartition
from nats.js.api import ConsumerConfig, DeliverPolicy

from outbox_core.headers import CONTENT_TYPE, EVENT_ID, KEY
from outbox_core.headers import TOPIC as HEADER_TOPIC
from tests.faults.brokers import CONNECT_SECONDS, PARTITIONS, STREAM, WHOLE
from tests.faults.content import NAMELESS, digest_of
from tests.faults.plan import TOPIC, Broker

ASK_SECONDS = 1.0
PREFETCH = 500
TOGETHER_SECONDS = 0.01
"""What comes one after the other within this time is read together; the time of an arrival is no finer."""


@dataclass(frozen=True, slots=True)
class Record:
    """A message as the broker has it: where in its own count, and a digest of what it says."""

    partition: int
    position: int
    event_id: str
    content: str


class Reader(Protocol):
    """Reads one place from its beginning, or from where another reader stopped."""

    async def some(self) -> list[Record]:
        """What has come, within a second or so; empty when nothing has."""
        ...

    async def done(self) -> None:
        """Whatever has been read is on record: it need not come again."""
        ...

    async def size(self) -> int:
        """How many messages there are to read in all."""
        ...


def of_kafka(record: Any) -> Record:
    headers = {name: value.decode() for name, value in record.headers}
    event_id = headers.get(EVENT_ID, NAMELESS)
    key = headers.get(KEY, event_id).encode()
    digest = digest_of(headers, record.value, key=(record.key, key), topic=(record.topic, TOPIC))
    return Record(record.partition, record.offset, event_id, digest)


def of_jetstream(message: Any) -> Record:
    headers = dict(message.headers or {})
    event_id = headers.get(EVENT_ID, NAMELESS)
    digest = digest_of(
        headers, message.data, id=(headers.get("Nats-Msg-Id"), event_id), subject=(message.subject, TOPIC)
    )
    return Record(0, message.metadata.sequence.stream, event_id, digest)


def of_rabbitmq(message: Any, position: int) -> Record:
    headers = {name: str(value) for name, value in message.headers.items()}
    event_id = headers.get(EVENT_ID, NAMELESS)
    digest = digest_of(
        headers,
        message.body,
        id=(message.message_id, event_id),
        type=(message.type, headers.get(HEADER_TOPIC)),
        media_type=(message.content_type, headers.get(CONTENT_TYPE)),
        routing_key=(message.routing_key, TOPIC),
    )
    return Record(0, position, event_id, digest)


class KafkaReader:
    def __init__(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._consumer = consumer
        self._partitions = partitions

    async def some(self) -> list[Record]:
        found = await self._consumer.getmany(timeout_ms=int(ASK_SECONDS * 1000), max_records=500)
        return [of_kafka(record) for records in found.values() for record in records]

    async def done(self) -> None:
        """Its position is the reader's own."""

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

    async def some(self) -> list[Record]:
        found: list[Record] = []
        end = time.monotonic() + ASK_SECONDS
        try:
            while time.monotonic() < end and len(found) < PREFETCH:
                message = await self._subscription.next_msg(
                    timeout=TOGETHER_SECONDS if found else ASK_SECONDS
                )
                found.append(of_jetstream(message))
        except nats.errors.TimeoutError:
            pass
        return found

    async def done(self) -> None:
        """Its position is the reader's own."""

    async def size(self) -> int:
        return int((await self._jetstream.stream_info(STREAM)).state.messages)


@asynccontextmanager
async def jetstream(address: str, _: str, after: dict[int, int]) -> AsyncIterator[Reader]:
    client = await nats.connect(
        address, allow_reconnect=False, connect_timeout=CONNECT_SECONDS, error_cb=ignore_error
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
    """Messages come as the broker pushes them and are acknowledged once they are on record, many at a time."""

    def __init__(self, channel: Any, queue: Any, read: int) -> None:
        self._channel = channel
        self._queue = queue
        self._read = read
        self._pushed: asyncio.Queue[Any] = asyncio.Queue()
        self._last: Any = None
        self._consuming = False

    async def some(self) -> list[Record]:
        if not self._consuming:
            self._consuming = True
            await self._queue.consume(self._pushed.put, timeout=CONNECT_SECONDS)
        messages: list[Any] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_SECONDS / 2):
                messages.append(await self._pushed.get())
        while not self._pushed.empty():
            messages.append(self._pushed.get_nowait())
        first = self._read + 1
        self._read += len(messages)
        self._last = messages[-1] if messages else self._last
        return [of_rabbitmq(each, first + at) for at, each in enumerate(messages)]

    async def done(self) -> None:
        if self._last is not None:
            await self._last.ack(multiple=True)
            self._last = None

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


async def ignore_error(error: Exception) -> None:
    """The reader itself fails; the client's default would also print it."""


READERS: dict[str, Callable[[str, str, dict[int, int]], AbstractAsyncContextManager[Reader]]] = {
    "kafka": kafka,
    "nats": jetstream,
    "amqp": rabbitmq,
}


async def read_all(broker: Broker, address: str, within: float) -> list[Record]:
    """Everything the broker has, in its order, repetitions included, by a consumer that begins only now."""
    found: list[Record] = []
    async with asyncio.timeout(within), READERS[broker](address, WHOLE, {}) as reader:
        size = await reader.size()
        while len(found) < size:
            found += await reader.some()
            await reader.done()
    return found
