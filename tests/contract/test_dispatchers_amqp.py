"""The AMQP dispatcher keeps the contract of dispatchers, on a real RabbitMQ."""

from __future__ import annotations

import asyncio

import aio_pika
import pytest

from outbox_amqp import AmqpDispatcher, from_message
from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.dispatcher import Broker, Capabilities, OutageContract, ServiceContract
from tests.services.own_loop import run_async
from tests.services.rabbitmq import RabbitMQServer


class AmqpBroker(Broker):
    close_within = 4.0

    def __init__(self, server: RabbitMQServer, name: str) -> None:
        self._server = server
        self.topic = f"{name}.order.placed.v1"
        self.unknown_topic = f"{name}.nowhere.v1"
        self._seen: list[DispatchedMessage] = []

    async def create(self, kind: str) -> None:
        async with await aio_pika.connect(self._server.address) as connection:
            channel = await connection.channel()
            await channel.declare_queue(self.topic, durable=True, arguments={"x-queue-type": kind})

    def make(self) -> AmqpDispatcher:
        return AmqpDispatcher(url=self._server.address, connect_timeout=2)

    def make_with_password(self, password: str) -> AmqpDispatcher:
        return AmqpDispatcher.from_url(self._server.address.replace("guest:guest", f"guest:{password}"))

    async def stored(self) -> list[DispatchedMessage]:
        async with await aio_pika.connect(self._server.address) as connection:
            channel = await connection.channel()
            queue = await channel.get_queue(self.topic)
            while (message := await queue.get(fail=False, no_ack=True)) is not None:
                self._seen.append(from_message(message))
        return list(self._seen)

    async def freeze(self) -> None:
        await asyncio.to_thread(self._server.freeze)

    async def thaw(self) -> None:
        await asyncio.to_thread(self._server.thaw)

    async def kill(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self._server.start)


def _created(server: RabbitMQServer, name: str, kind: str) -> AmqpBroker:
    broker = AmqpBroker(server, name)
    run_async(lambda: broker.create(kind), timeout_s=20)
    return broker


@pytest.mark.asyncio
class TestAmqp(ServiceContract):
    capabilities = Capabilities()

    @pytest.fixture
    def broker(self, rabbitmq_server: RabbitMQServer, unique_name: str) -> Broker:
        return _created(rabbitmq_server, unique_name, "quorum")


@pytest.mark.asyncio
@pytest.mark.timeout(150)
class TestAmqpOutages(OutageContract):
    capabilities = Capabilities()

    @pytest.fixture
    def broker(self, private_rabbitmq: RabbitMQServer, unique_name: str) -> Broker:
        # The only member of a quorum queue takes minutes to become its leader again after a kill.
        broker = _created(private_rabbitmq, unique_name, "classic")
        private_rabbitmq.keep_definitions()
        return broker
