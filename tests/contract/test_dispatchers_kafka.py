"""The Kafka dispatcher keeps the contract of dispatchers, on a real broker."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.dispatcher import Broker, Capabilities, OutageContract, ServiceContract
from outbox_kafka import KafkaDispatcher, from_record
from tests.services.kafka import KafkaServer


class KafkaBroker(Broker):
    close_within = 4.0

    def __init__(self, server: KafkaServer, name: str) -> None:
        self._server = server
        self.topic = f"{name}.order.placed.v1"
        self.unknown_topic = f"{name}.nowhere.v1"
        server.create_topic(self.topic)

    def make(self) -> KafkaDispatcher:
        return KafkaDispatcher(url=f"kafka://{self._server.address}", connect_timeout=2)

    def make_with_password(self, password: str) -> KafkaDispatcher:
        return KafkaDispatcher.from_url(f"kafka://user:{password}@{self._server.address}")

    async def stored(self) -> list[DispatchedMessage]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._server.address, auto_offset_reset="earliest")
        await consumer.start()
        try:
            partition = TopicPartition(self.topic, 0)
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            found: list[DispatchedMessage] = []
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(partition, timeout_ms=1000)).values():
                    found += [from_record(record) for record in records]
            return found
        finally:
            await consumer.stop()

    async def freeze(self) -> None:
        await asyncio.to_thread(self._server.freeze)

    async def thaw(self) -> None:
        await asyncio.to_thread(self._server.thaw)

    async def kill(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self._server.start)


@pytest.mark.asyncio
class TestKafka(ServiceContract):
    capabilities = Capabilities(max_bytes=1_048_576)

    @pytest.fixture
    def broker(self, kafka_server: KafkaServer, unique_name: str) -> Broker:
        return KafkaBroker(kafka_server, unique_name)


@pytest.mark.asyncio
@pytest.mark.timeout(150)
class TestKafkaOutages(OutageContract):
    capabilities = Capabilities(max_bytes=1_048_576)

    @pytest.fixture
    def broker(self, private_kafka: KafkaServer, unique_name: str) -> Broker:
        return KafkaBroker(private_kafka, unique_name)
