"""Kafka and RabbitMQ say whether they have a place for a topic."""

from __future__ import annotations

import aio_pika
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from outbox_amqp import AmqpDispatcher
from outbox_core.dispatcher import Inspecting
from outbox_core.errors import ProviderError
from outbox_kafka import KafkaDispatcher
from tests.services.kafka import KafkaServer
from tests.services.rabbitmq import RabbitMQServer

pytestmark = pytest.mark.asyncio


async def test_a_kafka_topic(kafka_server: KafkaServer, unique_name: str) -> None:
    topic, missing = f"{unique_name}.placed.v1", f"{unique_name}.missing.v1"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_server.address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()
    async with KafkaDispatcher(f"kafka://{kafka_server.address}") as dispatcher:
        assert isinstance(dispatcher, Inspecting)
        await dispatcher.inspect(topic)
        with pytest.raises(ProviderError, match=missing):
            await dispatcher.inspect(missing)
        await dispatcher.probe()


async def test_a_queue_and_an_exchange(rabbitmq_server: RabbitMQServer, unique_name: str) -> None:
    topic, exchange = f"{unique_name}.placed.v1", f"{unique_name}-events"
    connection = await aio_pika.connect(rabbitmq_server.address)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(topic)
        made = await channel.declare_exchange(exchange)
        async with AmqpDispatcher(rabbitmq_server.address) as dispatcher:
            await dispatcher.inspect(topic)
            with pytest.raises(ProviderError, match="nobody"):
                await dispatcher.inspect(f"{unique_name}.nobody.v1")
            await dispatcher.probe()
        async with AmqpDispatcher(rabbitmq_server.address, exchange=exchange) as dispatcher:
            await dispatcher.inspect(topic)
        async with AmqpDispatcher(rabbitmq_server.address, exchange="missing") as dispatcher:
            with pytest.raises(ProviderError, match="missing"):
                await dispatcher.inspect(topic)
        await queue.delete()
        await made.delete()
