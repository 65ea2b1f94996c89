"""The AMQP dispatcher's connection: logins, TLS, alarms, unavailable brokers, and the weaknesses of the clients."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import aio_pika
import pytest

from outbox_amqp import AmqpDispatcher
from outbox_amqp.client import HEARTBEAT_SECONDS
from outbox_core.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DispatchTimeout,
    PermanentError,
    ProviderError,
)
from outbox_core.testing.contracts.samples import sample, samples
from tests.conftest import skipped_or_failed_when_missing
from tests.integration.adapters.certificates import Certificates
from tests.integration.adapters.driving import delivered, failing, failure, window
from tests.services.proxy import FaultProxy
from tests.services.rabbitmq import RabbitMQServer
from tests.services.session import Services

pytestmark = [pytest.mark.asyncio, pytest.mark.amqp, pytest.mark.timeout(120)]

LIMIT = 200_000


@dataclass(frozen=True)
class Rabbit:
    """A private RabbitMQ of this module: tests change its users and alarms, and restore them."""

    server: RabbitMQServer
    tls_port: int

    def url(self, login: str = "guest:guest", port: int | None = None) -> str:
        return f"amqp://{login}@127.0.0.1:{port or self.server.port}/"

    async def control(self, *arguments: str) -> None:
        await asyncio.to_thread(self.server.control, *arguments)

    async def add_queue(self, name: str) -> None:
        async with await aio_pika.connect(self.server.address) as connection:
            await (await connection.channel()).declare_queue(name, durable=True)


@pytest.fixture(scope="module")
def rabbit(services: Services, certificates: Certificates) -> Iterator[Rabbit]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = f"""
max_message_size = {LIMIT}
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {certificates.authority}
ssl_options.certfile = {certificates.certificate}
ssl_options.keyfile = {certificates.key}
ssl_options.verify = verify_none
"""
    with skipped_or_failed_when_missing(), services.private(RabbitMQServer, extra_config=config) as server:
        yield Rabbit(server, port)


async def test_the_dispatcher_opens_while_the_broker_is_unavailable(
    private_rabbitmq: RabbitMQServer, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    private_rabbitmq.kill()
    began = time.monotonic()
    async with AmqpDispatcher(url=private_rabbitmq.address) as dispatcher:
        assert time.monotonic() - began < 2
        assert "cannot be reached" in caplog.text
        assert type(await failure(dispatcher, sample(unique_name))) is BrokerUnavailable
        with pytest.raises(BrokerUnavailable):
            await dispatcher.probe()
        await asyncio.to_thread(private_rabbitmq.start)
        await Rabbit(private_rabbitmq, 0).add_queue(unique_name)
        await dispatcher.probe()
        await dispatcher.dispatch(sample(unique_name))


async def test_a_refused_login_is_raised_on_opening(rabbit: Rabbit) -> None:
    with pytest.raises(BrokerRefused, match="refused the login: ACCESS_REFUSED") as caught:
        await AmqpDispatcher(url=rabbit.url("guest:wr0ng-secret")).__aenter__()
    assert "wr0ng-secret" not in repr(caught.value)

    with pytest.raises(BrokerRefused, match="there is no such virtual host"):
        await AmqpDispatcher(url=f"{rabbit.url()}nowhere").__aenter__()


async def test_a_password_may_have_special_characters(rabbit: Rabbit, unique_name: str) -> None:
    await rabbit.control("add_user", unique_name, "p@ss/w:rd?%#,")
    await rabbit.control("set_permissions", unique_name, "", "", "")
    async with AmqpDispatcher(url=rabbit.url(f"{unique_name}:p%40ss%2Fw%3Ard%3F%25%23%2C")) as dispatcher:
        await dispatcher.probe()


async def test_an_expired_password_is_requested_again(rabbit: Rabbit, unique_name: str) -> None:
    await rabbit.add_queue(unique_name)
    await rabbit.control("add_user", unique_name, "first")
    await rabbit.control("set_permissions", unique_name, ".*", ".*", ".*")
    password = "first"
    options = {"login": unique_name, "password": lambda: password}
    async with AmqpDispatcher(url=rabbit.url(), client_options=options) as dispatcher:
        await dispatcher.dispatch(sample(unique_name))
        await rabbit.control("change_password", unique_name, "second")
        await rabbit.control("close_all_user_connections", unique_name, "credentials expired")
        await failing(dispatcher, sample(unique_name), BrokerRefused)
        password = "second"
        await dispatcher.dispatch(sample(unique_name))


async def test_a_forbidden_exchange_fails_only_its_own_messages(rabbit: Rabbit, unique_name: str) -> None:
    await rabbit.add_queue(unique_name)
    await rabbit.control("add_user", unique_name, "p")
    await rabbit.control("set_permissions", unique_name, "", "^amq.default$", "")
    destinations: dict[str, str | tuple[str, str]] = {"forbidden": ("amq.topic", "x"), "**": unique_name}
    async with AmqpDispatcher(url=rabbit.url(f"{unique_name}:p"), destinations=destinations) as dispatcher:
        outcomes = await window(dispatcher, [sample("a"), sample("forbidden"), sample("b")])

    assert (outcomes[0], outcomes[2]) == (None, None)
    assert type(outcomes[1]) is ProviderError
    assert "may not publish there: exchange 'amq.topic', routing key 'x'" in str(outcomes[1])


async def test_a_message_too_large_for_the_broker_fails_permanently_and_alone(
    rabbit: Rabbit, unique_name: str
) -> None:
    await rabbit.add_queue(unique_name)
    large = sample(unique_name, b"x" * (LIMIT + 1), content_type="text/plain")
    async with AmqpDispatcher(url=rabbit.url()) as dispatcher:
        outcomes = await window(dispatcher, [sample(unique_name), large, sample(unique_name)])

    assert (outcomes[0], outcomes[2]) == (None, None)
    assert type(outcomes[1]) is PermanentError
    assert f"larger than configured max size {LIMIT}" in str(outcomes[1])


async def test_a_disk_alarm_is_an_outage_that_ends(rabbit: Rabbit, unique_name: str) -> None:
    await rabbit.add_queue(unique_name)
    async with AmqpDispatcher(url=rabbit.url()) as dispatcher:
        await dispatcher.dispatch(sample(unique_name))
        try:
            await rabbit.control("set_disk_free_limit", "999GB")
            error = await failing_soon(dispatcher, unique_name)
            assert "connection.blocked" in str(error)
            with pytest.raises(BrokerUnavailable, match=r"connection\.blocked"):
                await dispatcher.probe()
            began = time.monotonic()
            assert isinstance(await failure(dispatcher, sample(unique_name)), BrokerUnavailable)
            assert time.monotonic() - began < 1
        finally:
            await rabbit.control("set_disk_free_limit", "50MB")
        await delivered(dispatcher, sample(unique_name))


async def failing_soon(dispatcher: AmqpDispatcher, topic: str) -> BrokerUnavailable:
    """The error of the first publish that is not confirmed: the alarm is raised a moment after it is requested."""
    async with asyncio.timeout(30):
        while True:
            (outcome,) = await window(dispatcher, [sample(topic)], seconds=0.5)
            if outcome is not None:
                assert isinstance(outcome, BrokerUnavailable), outcome
                return outcome


async def test_closing_is_bounded_while_the_broker_blocks(rabbit: Rabbit, unique_name: str) -> None:
    await rabbit.add_queue(unique_name)
    dispatcher = AmqpDispatcher(url=rabbit.url())
    await dispatcher.__aenter__()
    try:
        await rabbit.control("set_disk_free_limit", "999GB")
        await failing_soon(dispatcher, unique_name)
        began = time.monotonic()
        await dispatcher.__aexit__(None, None, None)
        assert time.monotonic() - began < 3
    finally:
        await rabbit.control("set_disk_free_limit", "50MB")


async def test_tls_works_with_a_private_authority(rabbit: Rabbit, certificates: Certificates) -> None:
    url = rabbit.url(port=rabbit.tls_port).replace("amqp://", "amqps://")

    with pytest.raises(BrokerRefused, match=r"certificate of amqps://.* is not trusted"):
        await AmqpDispatcher(url=url).__aenter__()
    for options in ({"ssl_context": certificates.context()}, {"cafile": str(certificates.authority)}):
        async with AmqpDispatcher(url=url, client_options=options) as dispatcher:
            await dispatcher.probe()


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"INFO {}\r\n", b"AMQP\x00\x01\x00\x00", b""]
)
async def test_another_protocol_at_the_address_is_reported_as_unavailable(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, AmqpDispatcher(url=f"amqp://127.0.0.1:{port}") as dispatcher:
        error = await failure(dispatcher, sample("a"))

    assert type(error) is BrokerUnavailable
    assert f"amqp://127.0.0.1:{port}" in str(error)


async def test_a_lost_connection_fails_the_window_at_once(rabbit: Rabbit, unique_name: str) -> None:
    await rabbit.add_queue(unique_name)
    async with (
        FaultProxy(("127.0.0.1", rabbit.server.port)) as proxy,
        AmqpDispatcher(url=rabbit.url(port=proxy.port)) as dispatcher,
    ):
        await dispatcher.dispatch(sample(unique_name))
        proxy.hold_responses()
        task = asyncio.create_task(window(dispatcher, samples(unique_name, 5), seconds=20))
        await proxy.wait_for(lambda proxy: proxy.responses.held > 0)
        began = time.monotonic()
        proxy.reset()
        outcomes = await task
        assert time.monotonic() - began < 2
        assert all(isinstance(outcome, BrokerUnavailable) for outcome in outcomes), outcomes
        proxy.pass_through()
        await dispatcher.dispatch(sample(unique_name))


async def test_a_missing_confirmation_times_out_and_replaces_the_connection(
    rabbit: Rabbit, unique_name: str
) -> None:
    """aio-pika's `publish` would wait for ever."""
    await rabbit.add_queue(unique_name)
    async with (
        FaultProxy(("127.0.0.1", rabbit.server.port)) as proxy,
        AmqpDispatcher(url=rabbit.url(port=proxy.port)) as dispatcher,
    ):
        await dispatcher.dispatch(sample(unique_name))
        before = proxy.accepted
        proxy.hold_responses()
        outcomes = await window(dispatcher, samples(unique_name, 5), seconds=0.5)
        assert [type(outcome) for outcome in outcomes] == [DispatchTimeout] * 5
        proxy.pass_through()
        await dispatcher.dispatch(sample(unique_name))
        assert proxy.accepted == before + 1


async def test_a_lost_connection_of_the_application_fails_its_window_in_time(
    rabbit: Rabbit, unique_name: str
) -> None:
    """A publish on a robust connection that is lost would wait until it is restored."""
    await rabbit.add_queue(unique_name)
    async with FaultProxy(("127.0.0.1", rabbit.server.port)) as proxy:
        own = await aio_pika.connect_robust(rabbit.url(port=proxy.port), reconnect_interval=0.1)
        async with AmqpDispatcher(client=own) as dispatcher:
            await dispatcher.dispatch(sample(unique_name))
            proxy.refuse()
            proxy.reset()
            began = time.monotonic()
            (outcome,) = await window(dispatcher, [sample(unique_name)], seconds=1)
            assert time.monotonic() - began < 1.5
            assert isinstance(outcome, BrokerUnavailable | DispatchTimeout)
            proxy.pass_through()
            await delivered(dispatcher, sample(unique_name))
        await own.close()


async def test_a_dead_peer_is_noticed_in_half_a_minute(rabbit: Rabbit) -> None:
    assert 3 * (HEARTBEAT_SECONDS + 1) <= 35
    dispatcher = AmqpDispatcher(url=rabbit.url())
    async with dispatcher, dispatcher._link.use(asyncio.get_running_loop().time() + 5) as held:
        transport = held.client.connection.transport
        assert transport is not None
        assert transport.connection.connection_tune.heartbeat == HEARTBEAT_SECONDS
