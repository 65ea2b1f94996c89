"""aiokafka, with batches as large as the adapter's."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer

from benchmarks.plain_clients import TOPIC, Client
from outbox_core.headers import to_headers
from outbox_core.meta import DispatchedMessage


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


@asynccontextmanager
async def connected(address: str) -> AsyncGenerator[Client]:
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=address, acks="all", enable_idempotence=True, max_batch_size=256 * 1024
    )
    await producer.start()
    try:
        yield Kafka(producer)
    finally:
        await producer.stop()
