"""Messages on a real RabbitMQ, and the outcomes of the broker's refusals."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import aio_pika
import pytest
import pytest_asyncio
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from cloudevents.core.bindings.rabbitmq import RabbitMQMessage, from_rabbitmq_event

from outbox_amqp import AmqpDestination, AmqpDispatcher, from_message
from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.dispatcher import BatchDispatcher, Probing, name_of
from outbox_core.errors import NotAnOutboxMessage, PermanentError, ProviderError
from outbox_core.testing.contracts.samples import sample, samples
from tests.integration.adapters.driving import failure, window
from tests.services.rabbitmq import RabbitMQServer

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def connection(rabbitmq_server: RabbitMQServer) -> AsyncIterator[AbstractConnection]:
    """The tests' own connection."""
    async with await aio_pika.connect(rabbitmq_server.address) as connection:
        yield connection


@pytest_asyncio.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    return await connection.channel()


@pytest_asyncio.fixture
async def queue(channel: AbstractChannel, unique_name: str) -> str:
    await channel.declare_queue(unique_name, durable=True)
    return unique_name


async def received(channel: AbstractChannel, queue: str) -> AbstractIncomingMessage:
    return await (await channel.get_queue(queue)).get(no_ack=True)


async def count(channel: AbstractChannel, queue: str) -> int:
    declared = await channel.declare_queue(queue, passive=True)
    return declared.declaration_result.message_count or 0


async def test_the_dispatcher_has_windows_probes_and_a_name() -> None:
    dispatcher = AmqpDispatcher.from_url("amqp://user:s3cret@host/sales?exchange=events")

    assert isinstance(dispatcher, BatchDispatcher)
    assert isinstance(dispatcher, Probing)
    assert name_of(dispatcher) == "amqp://host:5672/sales"
    assert repr(dispatcher) == "<AmqpDispatcher amqp://host:5672/sales>"


async def test_the_properties_on_the_wire(
    rabbitmq_server: RabbitMQServer, channel: AbstractChannel, queue: str
) -> None:
    message = sample(queue, b"\x00\xff", content_type="application/avro", key="7", headers={"x-a": "b"})
    replayed = replace(message, meta=replace(message.meta, replays=1))
    async with AmqpDispatcher(url=rabbitmq_server.address) as dispatcher:
        await dispatcher.dispatch(message)
        await dispatcher.dispatch(replayed)
    got = await received(channel, queue)

    assert got.message_id == str(message.meta.event_id)
    assert got.content_type == "application/avro"
    assert got.timestamp == message.meta.created_at.replace(microsecond=0)
    assert got.type == queue
    assert got.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert (got.exchange, got.routing_key) == ("", queue)
    assert (got.headers["event-id"], got.headers["key"], got.headers["x-a"]) == (got.message_id, "7", "b")
    assert (from_message(got), from_message(await received(channel, queue))) == (message, replayed)


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b'{"price": 1.10}', "application/json"),
        (b"not json", "application/json"),
        (bytes(range(256)), "application/avro"),
    ],
)
async def test_cloud_events_are_read_back_as_they_were_dispatched(
    rabbitmq_server: RabbitMQServer,
    channel: AbstractChannel,
    queue: str,
    mode: str,
    payload: bytes,
    content_type: str,
) -> None:
    message = sample(
        queue,
        payload,
        content_type=content_type,
        key="№ 7 100%",
        headers={"x-city": "Zürich"},
        tracestate=None,
    )
    async with AmqpDispatcher.from_url(f"{rabbitmq_server.address}?cloud_events={mode}") as dispatcher:
        await dispatcher.dispatch(message)

    assert from_message(await received(channel, queue)) == message


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_the_official_package_reads_our_cloud_events(
    rabbitmq_server: RabbitMQServer, channel: AbstractChannel, queue: str, mode: str
) -> None:
    message = sample(queue, b'{"number": 7}', key="№ 7")
    events = CloudEvents("binary" if mode == "binary" else "structured", source="/shop/orders")
    async with AmqpDispatcher(url=rabbitmq_server.address, cloud_events=events) as dispatcher:
        await dispatcher.dispatch(message)
    got = await received(channel, queue)
    headers = {name: str(value) for name, value in got.headers.items()}

    event = from_rabbitmq_event(RabbitMQMessage(headers, got.content_type, got.body))

    assert (event.get_id(), event.get_type()) == (str(message.meta.event_id), queue)
    assert (event.get_source(), event.get_specversion()) == ("/shop/orders", "1.0")
    assert event.get_time() == message.meta.created_at
    assert event.get_data() == {"number": 7}
    assert event.get_extension("partitionkey") == "№ 7"


async def test_a_dead_lettered_message_is_read_back_as_it_was_dispatched(
    rabbitmq_server: RabbitMQServer, channel: AbstractChannel, queue: str
) -> None:
    """RabbitMQ adds headers when it dead-letters, some of them tables."""
    first = f"{queue}-first"
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    declared = await channel.declare_queue(first, durable=True, arguments=arguments)
    message = sample(first)
    async with AmqpDispatcher(url=rabbitmq_server.address) as dispatcher:
        await dispatcher.dispatch(message)
    await (await declared.get()).reject()
    target = await channel.get_queue(queue)
    async with target.iterator(timeout=5) as arriving:
        async for got in arriving:
            assert "x-death" in got.headers
            assert from_message(got) == message
            break


async def test_a_message_from_another_producer_is_refused() -> None:
    for headers in ({}, {"x": "y"}, {"ce-specversion": "1.0"}):
        with pytest.raises(NotAnOutboxMessage):
            from_message(aio_pika.Message(b"{}", headers=dict(headers)))


async def test_destinations(rabbitmq_server: RabbitMQServer, channel: AbstractChannel, queue: str) -> None:
    exchange = await channel.declare_exchange(queue, aio_pika.ExchangeType.TOPIC, durable=True)
    await (await channel.get_queue(queue)).bind(exchange, "orders.#")
    mapping: dict[str, str | tuple[str, str]] = {
        "a": queue,
        "orders.**": (queue, "orders.mapped"),
        "b": AmqpDestination(queue, "orders.b"),
    }
    async with AmqpDispatcher(url=rabbitmq_server.address, destinations=mapping) as dispatcher:
        for topic, expected in (
            ("a", ("", queue)),
            ("orders.x", (queue, "orders.mapped")),
            ("b", (queue, "orders.b")),
        ):
            await dispatcher.dispatch(sample(topic))
            got = await received(channel, queue)
            assert (got.exchange, got.routing_key) == expected
    async with AmqpDispatcher.from_url(f"{rabbitmq_server.address}?exchange={queue}") as dispatcher:
        await dispatcher.dispatch(sample("orders.placed.v1"))
        got = await received(channel, queue)
        assert (got.exchange, got.routing_key) == (queue, "orders.placed.v1")


async def test_an_invalid_destination_fails_only_its_own_message(
    rabbitmq_server: RabbitMQServer, channel: AbstractChannel, queue: str
) -> None:
    wrong: dict[str, object] = {
        "b": None,
        "c": ("one",),
        "d": "x" * 300,
        "e": ("", ""),
        "f": (b"x", "y"),
        "g": "a\nb",
    }

    def destination(topic: str) -> str:
        return wrong.get(topic, queue)  # type: ignore[return-value]

    async with AmqpDispatcher(url=rabbitmq_server.address, destinations=destination) as dispatcher:
        outcomes = await window(dispatcher, [sample(topic) for topic in "abcdefgh"])

    assert (outcomes[0], outcomes[7]) == (None, None)
    assert [type(outcome) for outcome in outcomes[1:7]] == [PermanentError] * 6
    assert "invalid destination ('one',): expected (exchange, routing key)" in str(outcomes[2])
    assert await count(channel, queue) == 2


async def test_a_returned_message_is_not_delivered(
    rabbitmq_server: RabbitMQServer, channel: AbstractChannel, queue: str
) -> None:
    """On a channel of aio-pika's default kind an unroutable publish succeeds."""
    async with AmqpDispatcher(url=rabbitmq_server.address) as dispatcher:
        outcomes = await window(dispatcher, [sample(queue), sample("nowhere.v1"), sample(queue)])

    assert (outcomes[0], outcomes[2]) == (None, None)
    assert type(outcomes[1]) is ProviderError
    assert "no queue is bound to take the message: exchange '', routing key 'nowhere.v1'" in str(outcomes[1])
    assert outcomes[1].__cause__ is None


async def test_two_messages_with_one_id_get_their_own_outcomes(
    rabbitmq_server: RabbitMQServer, channel: AbstractChannel, queue: str
) -> None:
    """aiormq would report the returned one as confirmed, and the other as returned."""
    routable = sample(queue)
    unroutable = replace(routable, meta=replace(routable.meta, topic="nowhere.v1"))
    async with AmqpDispatcher(url=rabbitmq_server.address) as dispatcher:
        for _ in range(20):
            outcomes = await window(dispatcher, [unroutable, routable, unroutable, routable])
            assert [outcome is None for outcome in outcomes] == [False, True, False, True]

    assert await count(channel, queue) == 40


async def test_a_missing_exchange_fails_only_its_own_messages(
    rabbitmq_server: RabbitMQServer, channel: AbstractChannel, queue: str
) -> None:
    """The broker closes the channel, and every other publish on it fails, too."""
    destinations: dict[str, str | tuple[str, str]] = {"lost": ("no-such-exchange", "x"), "**": queue}
    good = samples(queue, 20)
    async with AmqpDispatcher(url=rabbitmq_server.address, destinations=destinations) as dispatcher:
        outcomes = await window(dispatcher, [*good[:10], sample("lost"), *good[10:], sample("lost")])
        await dispatcher.dispatch(sample(queue))

    assert [at for at, outcome in enumerate(outcomes) if outcome is not None] == [10, 21]
    assert type(outcomes[10]) is ProviderError
    assert "there is no such exchange: exchange 'no-such-exchange', routing key 'x'" in str(outcomes[10])
    assert await count(channel, queue) >= 21


async def test_a_nack_is_retried(
    rabbitmq_server: RabbitMQServer, channel: AbstractChannel, unique_name: str
) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await channel.declare_queue(unique_name, durable=True, arguments=arguments)
    async with AmqpDispatcher(url=rabbitmq_server.address) as dispatcher:
        outcomes = [await window(dispatcher, [sample(unique_name)]) for _ in range(4)]

    assert outcomes[0][0] is None
    assert type(outcomes[3][0]) is ProviderError
    assert "did not accept the message (nack)" in str(outcomes[3][0])


async def test_headers_written_by_hand_are_refused(rabbitmq_server: RabbitMQServer, queue: str) -> None:
    async with AmqpDispatcher(url=rabbitmq_server.address) as dispatcher:
        for headers in ({"CC": "other"}, {"x": "a\r\nb"}):
            assert isinstance(await failure(dispatcher, sample(queue, headers=headers)), PermanentError)


@pytest.mark.parametrize("connect", [aio_pika.connect, aio_pika.connect_robust])
async def test_the_applications_own_connection_is_used_and_not_closed(
    rabbitmq_server: RabbitMQServer, channel: AbstractChannel, queue: str, connect: object
) -> None:
    assert callable(connect)
    message = sample(queue)
    async with await connect(rabbitmq_server.address) as own:
        async with AmqpDispatcher(client=own) as dispatcher:
            await dispatcher.dispatch(message)
            await dispatcher.probe()
            error = await failure(dispatcher, sample("nowhere.v1"))
            await dispatcher.dispatch(sample(queue))
        assert "no queue is bound" in str(error)
        assert not own.is_closed
        await (await own.channel()).close()

    assert from_message(await received(channel, queue)) == message


async def test_no_logger_shows_a_payload(
    rabbitmq_server: RabbitMQServer, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """aio-pika prints messages, and aiormq frames, at DEBUG."""
    with caplog.at_level(logging.DEBUG):
        for name in ("aio_pika", "aio_pika.exchange", "aiormq", "aiormq.connection", "aiormq.channel"):
            caplog.set_level(logging.DEBUG, name)
        async with AmqpDispatcher(url=rabbitmq_server.address) as dispatcher:
            await window(
                dispatcher,
                [sample(topic, b'{"card": "4111-CANARY"}', key="KEY-CANARY") for topic in (queue, "no")],
            )

    assert "CANARY" not in caplog.text
