"""Consumers as applications have them: the broker keeps count of what they have read, and they tell it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import nats
from aiokafka import AIOKafkaConsumer
from nats.js.api import ConsumerConfig

from tests.faults.brokers import CONNECT_SECONDS, STREAM
from tests.faults.plan import TOPIC
from tests.faults.readers import (
    ASK_SECONDS,
    PREFETCH,
    Reader,
    Record,
    ignore_error,
    of_jetstream,
    of_kafka,
    rabbitmq,
)

REDELIVERY_SECONDS = 5.0
SESSION_MILLISECONDS = 6_000
"""How long a group waits for a member whose connection was lost."""


class KafkaMember:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def some(self) -> list[Record]:
        found = await self._consumer.getmany(timeout_ms=int(ASK_SECONDS * 1000), max_records=PREFETCH)
        return [of_kafka(record) for records in found.values() for record in records]

    async def done(self) -> None:
        await self._consumer.commit()

    async def size(self) -> int:
        return sum((await self._consumer.end_offsets(self._consumer.assignment())).values())


@asynccontextmanager
async def kafka(address: str, name: str, _: dict[int, int]) -> AsyncIterator[Reader]:
    """The only member of its consumer group."""
    consumer: Any = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=address,
        group_id=name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MILLISECONDS,
        heartbeat_interval_ms=SESSION_MILLISECONDS // 4,
        request_timeout_ms=CONNECT_SECONDS * 2000,
    )
    try:
        async with asyncio.timeout(CONNECT_SECONDS * 2):
            await consumer.start()
        yield KafkaMember(consumer)
    finally:
        async with asyncio.timeout(CONNECT_SECONDS):
            await consumer.stop()


class DurableConsumer:
    def __init__(self, jetstream: Any, subscription: Any) -> None:
        self._jetstream = jetstream
        self._subscription = subscription
        self._fetched: list[Any] = []

    async def some(self) -> list[Record]:
        try:
            found = await self._subscription.fetch(PREFETCH, timeout=ASK_SECONDS)
        except nats.errors.TimeoutError:
            return []
        self._fetched += found
        return [of_jetstream(message) for message in found]

    async def done(self) -> None:
        fetched, self._fetched = self._fetched, []
        for message in fetched:
            await message.ack()

    async def size(self) -> int:
        return int((await self._jetstream.stream_info(STREAM)).state.messages)


@asynccontextmanager
async def jetstream(address: str, name: str, _: dict[int, int]) -> AsyncIterator[Reader]:
    """A durable pull consumer, which acknowledges each message."""
    client = await nats.connect(
        address, allow_reconnect=False, connect_timeout=CONNECT_SECONDS, error_cb=ignore_error
    )
    try:
        stream = client.jetstream(timeout=CONNECT_SECONDS)
        config = ConsumerConfig(ack_wait=REDELIVERY_SECONDS, max_ack_pending=10 * PREFETCH)
        durable = name.replace(".", "-")
        yield DurableConsumer(
            stream, await stream.pull_subscribe(TOPIC, durable=durable, stream=STREAM, config=config)
        )
    finally:
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.close()


READERS: dict[str, Callable[[str, str, dict[int, int]], AbstractAsyncContextManager[Reader]]] = {
    "kafka": kafka,
    "nats": jetstream,
    "amqp": rabbitmq,
}
