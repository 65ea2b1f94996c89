"""A place to publish to, for each broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aio_pika
import nats

from outbox_amqp import AmqpDispatcher
from outbox_kafka import KafkaDispatcher
from outbox_nats import NatsDispatcher
from tests.faults.plan import TOPIC, Broker

PARTITIONS = 3
STREAM = "FAULTS"
EXCHANGE = "faults"
LIVE, GROUP, WHOLE = "faults.live", "faults.group", "faults.whole"
"""Who reads: two while it happens, one by its own count and one by the broker's, and one once all is quiet. A queue
keeps nothing that was read, so each has its own."""
CONNECT_SECONDS = 5


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
            for name in (LIVE, GROUP, WHOLE):
                queue = await channel.declare_queue(
                    name, durable=True, arguments={"x-queue-type": "quorum"}, timeout=CONNECT_SECONDS
                )
                await queue.bind(exchange, timeout=CONNECT_SECONDS)
    elif create_topic is not None:
        await asyncio.to_thread(create_topic, TOPIC)
