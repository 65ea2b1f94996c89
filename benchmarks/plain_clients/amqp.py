"""aiormq, below aio-pika's messages, with the adapter's gathered writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
from aiormq import spec

from benchmarks.plain_clients import TOPIC, Client
from outbox_amqp.client import SocketFactory
from outbox_core.headers import to_headers
from outbox_core.meta import DispatchedMessage


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
async def connected(address: str) -> AsyncGenerator[Client]:
    connection = aio_pika.Connection(aio_pika.connection.make_url(address))
    connection.kwargs["transport_factory"] = SocketFactory(tls=False)
    await connection.connect()
    try:
        channel = connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.initialize()
        yield RabbitMQ(await channel.get_underlay_channel())
    finally:
        await connection.close()
