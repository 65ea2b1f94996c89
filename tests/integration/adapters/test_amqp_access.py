"""Access to a real RabbitMQ: permissions refused and then granted, and the guest, who needs no password."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import aio_pika
import pytest
import pytest_asyncio

from outbox_amqp import AmqpDispatcher
from outbox_core.dispatcher import load_dispatcher
from outbox_core.errors import BrokerRefused, ProviderError
from outbox_core.testing.contracts.samples import sample
from tests.integration.adapters.driving import delivered, failure, window
from tests.services.rabbitmq import RabbitMQServer

pytestmark = [pytest.mark.asyncio, pytest.mark.amqp, pytest.mark.timeout(120)]


@pytest_asyncio.fixture
async def queue(private_rabbitmq: RabbitMQServer, unique_name: str) -> AsyncGenerator[str]:
    """A queue bound to an exchange, both named like the test."""
    async with await aio_pika.connect(private_rabbitmq.address) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(unique_name, durable=True)
        exchange = await channel.declare_exchange(unique_name, aio_pika.ExchangeType.TOPIC, durable=True)
        await queue.bind(exchange, "#")
        yield unique_name


async def test_refused_access_works_once_it_is_granted(
    private_rabbitmq: RabbitMQServer, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def control(*arguments: str) -> None:
        await asyncio.to_thread(private_rabbitmq.control, *arguments)

    await control("add_user", "relay", "r3lay-secret")
    url = f"amqp://relay:r3lay-secret@127.0.0.1:{private_rabbitmq.port}/"
    with pytest.raises(BrokerRefused, match="no such virtual host, or this user may not use it"):
        await AmqpDispatcher(url).__aenter__()

    await control("set_permissions", "relay", "", "", "")
    async with AmqpDispatcher(url, exchange=queue) as dispatcher:
        outcomes = await window(dispatcher, [sample("a.b"), sample("a.c")])
        assert [type(outcome) for outcome in outcomes] == [ProviderError] * 2
        assert f"may not publish there: exchange {queue!r}, routing key 'a.b'" in str(outcomes[0])
        await control("set_permissions", "relay", "", queue, "")
        await delivered(dispatcher, sample("a.b"))

    assert "r3lay-secret" not in caplog.text


async def test_a_guest_logs_in_without_a_password(private_rabbitmq: RabbitMQServer, queue: str) -> None:
    dispatcher = load_dispatcher(f"amqp://guest@127.0.0.1:{private_rabbitmq.port}/?exchange={queue}")
    assert isinstance(dispatcher, AmqpDispatcher)
    async with dispatcher:
        await dispatcher.dispatch(sample("a.b"))
        await dispatcher.probe()
    assert "is not open" in str(await failure(dispatcher, sample("a.b")))
