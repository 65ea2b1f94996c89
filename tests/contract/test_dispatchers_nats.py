"""The NATS dispatcher keeps the contract of dispatchers, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig

from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.dispatcher import Broker, Capabilities, OutageContract, ServiceContract
from outbox_nats import NatsDispatcher, from_msg
from tests.services.nats import NatsServer
from tests.services.own_loop import run_async

UNACKNOWLEDGED = ConsumerConfig(ack_policy=AckPolicy.NONE)


class NatsBroker(Broker):
    close_within = 4.0

    def __init__(self, server: NatsServer, name: str) -> None:
        self._server = server
        self.topic = f"{name}.order.placed.v1"
        self.unknown_topic = f"{name}-nowhere.v1"
        self._stream = name

    async def create(self) -> None:
        client = Client()
        await client.connect(self._server.address)
        await client.jetstream().add_stream(name=self._stream, subjects=[f"{self._stream}.>"])
        await client.close()

    def make(self) -> NatsDispatcher:
        return NatsDispatcher(url=self._server.address, connect_timeout=2)

    def make_with_password(self, password: str) -> NatsDispatcher:
        address = self._server.address.replace("nats://", f"nats://user:{password}@")
        return NatsDispatcher.from_url(address)

    async def stored(self) -> list[DispatchedMessage]:
        client = Client()
        await client.connect(self._server.address)
        try:
            context = client.jetstream()
            count = (await context.stream_info(self._stream)).state.messages
            subscription = await context.pull_subscribe("", stream=self._stream, config=UNACKNOWLEDGED)
            found: list[DispatchedMessage] = []
            while len(found) < count:
                try:
                    batch = await subscription.fetch(min(count - len(found), 500), timeout=5)
                except NatsTimeoutError:
                    break
                found += [from_msg(msg) for msg in batch]
            return found
        finally:
            await client.close()

    async def freeze(self) -> None:
        await asyncio.to_thread(self._server.freeze)

    async def thaw(self) -> None:
        await asyncio.to_thread(self._server.thaw)

    async def kill(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self._server.start)


def _created(server: NatsServer, name: str) -> NatsBroker:
    broker = NatsBroker(server, name)
    run_async(broker.create, timeout_s=10)
    return broker


@pytest.mark.asyncio
class TestNats(ServiceContract):
    capabilities = Capabilities(max_bytes=1_048_576)

    @pytest.fixture
    def broker(self, nats_server: NatsServer, unique_name: str) -> Broker:
        return _created(nats_server, unique_name)


@pytest.mark.asyncio
class TestNatsOutages(OutageContract):
    capabilities = Capabilities(max_bytes=1_048_576)

    @pytest.fixture
    def broker(self, private_nats: NatsServer, unique_name: str) -> Iterator[Broker]:
        return _created(private_nats, unique_name)
