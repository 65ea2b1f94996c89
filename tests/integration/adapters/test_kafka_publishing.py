"""Messages on a real Kafka broker, and the outcomes of the broker's refusals."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event

from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.dispatcher import BatchDispatcher, Probing, name_of
from outbox_core.errors import (
    ConfigError,
    NotAnOutboxMessage,
    PermanentError,
    ProviderError,
)
from outbox_core.testing.contracts.samples import sample, samples
from outbox_kafka import KafkaDispatcher, from_record
from tests.integration.adapters.driving import failure, window
from tests.services.kafka import KafkaServer

pytestmark = pytest.mark.asyncio


@pytest.fixture
def topic(kafka_server: KafkaServer, unique_name: str) -> str:
    kafka_server.create_topic(unique_name)
    return unique_name


@pytest.fixture
def url(kafka_server: KafkaServer) -> str:
    return f"kafka://{kafka_server.address}"


async def records(server: KafkaServer, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
    consumer = AIOKafkaConsumer(bootstrap_servers=server.address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        found: list[ConsumerRecord[bytes, bytes]] = []
        while await consumer.position(partition) < end:
            for batch in (await consumer.getmany(partition, timeout_ms=1000)).values():
                found += batch
        return found
    finally:
        await consumer.stop()


async def test_the_dispatcher_has_windows_probes_and_a_name() -> None:
    dispatcher = KafkaDispatcher.from_url("kafka+ssl://user:s3cret@one,two:9093")

    assert isinstance(dispatcher, BatchDispatcher)
    assert isinstance(dispatcher, Probing)
    assert name_of(dispatcher) == "kafka+ssl://one:9092,two:9093"
    assert repr(dispatcher) == "<KafkaDispatcher kafka+ssl://one:9092,two:9093>"


async def test_the_record_on_the_wire(kafka_server: KafkaServer, topic: str, url: str) -> None:
    keyed = sample(topic, b"\x00\xff", content_type="application/avro", key="№ 7", headers={"x-a": "é"})
    plain = sample(topic)
    async with KafkaDispatcher(url=url) as dispatcher:
        await dispatcher.dispatch(keyed)
        await dispatcher.dispatch(plain)
    async with KafkaDispatcher(url=url, key_by_event_id=True) as dispatcher:
        await dispatcher.dispatch(keyed)
    first, second, third = await records(kafka_server, topic)

    assert (first.key, second.key, third.key) == (
        "№ 7".encode(),
        str(plain.meta.event_id).encode(),
        str(keyed.meta.event_id).encode(),
    )
    assert first.value == b"\x00\xff"
    headers = dict(first.headers)
    assert (headers["event-id"], headers["key"]) == (str(keyed.meta.event_id).encode(), "№ 7".encode())
    assert (headers["x-a"], headers["content-type"]) == ("é".encode(), b"application/avro")
    assert [from_record(record) for record in (first, second, third)] == [keyed, plain, keyed]


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_cloud_events_are_read_back_as_they_were_dispatched(
    kafka_server: KafkaServer, topic: str, url: str, mode: str
) -> None:
    messages = [
        sample(topic, payload, content_type=content_type, key="№ 7 100%", headers={"x-city": "Zürich"})
        for payload, content_type in (
            (b'{"price": 1.10}', "application/json"),
            (b"not json", "application/json"),
            (bytes(range(256)), "application/avro"),
            (b"", "application/octet-stream"),
        )
    ]
    messages += [replace(messages[0], meta=replace(messages[0].meta, replays=3, attempts=7))]
    async with KafkaDispatcher.from_url(f"{url}?cloud_events={mode}") as dispatcher:
        for message in messages:
            await dispatcher.dispatch(message)

    assert [from_record(record) for record in await records(kafka_server, topic)] == messages


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_the_official_package_reads_our_cloud_events(
    kafka_server: KafkaServer, topic: str, url: str, mode: str
) -> None:
    message = sample(topic, b'{"number": 7}', key="№ 7")
    events = CloudEvents("binary" if mode == "binary" else "structured", source="/shop/orders")
    async with KafkaDispatcher(url=url, cloud_events=events) as dispatcher:
        await dispatcher.dispatch(message)
    (record,) = await records(kafka_server, topic)

    event = from_kafka_event(KafkaMessage(dict(record.headers), record.key, record.value or b""))

    assert (event.get_id(), event.get_type()) == (str(message.meta.event_id), topic)
    assert (event.get_source(), event.get_specversion()) == ("/shop/orders", "1.0")
    assert event.get_time() == message.meta.created_at
    assert event.get_data() == {"number": 7}
    assert event.get_extension("partitionkey") in ("№ 7", "№ 7".encode())


@dataclass
class Foreign:
    headers: list[tuple[str, bytes | None]]
    value: bytes | None = b"{}"


async def test_a_record_from_another_producer_is_refused() -> None:
    for record in (
        Foreign([]),
        Foreign([("x", None)]),
        Foreign([("ce_specversion", b"1.0")]),
        Foreign([], None),
    ):
        with pytest.raises(NotAnOutboxMessage):
            from_record(record)


async def test_destinations_are_mapped_and_invalid_ones_are_refused(
    kafka_server: KafkaServer, topic: str, url: str
) -> None:
    wrong: dict[str, object] = {"b": "two words", "c": None, "d": "x" * 250, "e": "..", "f": ""}

    def destination(name: str) -> str:
        return wrong.get(name, topic)  # type: ignore[return-value]

    async with KafkaDispatcher(url=url, destinations=destination) as dispatcher:
        outcomes = await window(dispatcher, [sample(name) for name in "abcdefg"])
    async with KafkaDispatcher(url=url, destinations={"orders.**": topic}) as dispatcher:
        await dispatcher.dispatch(sample("orders.placed.v1"))

    assert (outcomes[0], outcomes[6]) == (None, None)
    assert [type(outcome) for outcome in outcomes[1:6]] == [PermanentError] * 5
    assert "invalid destination 'two words'" in str(outcomes[1])
    assert len(await records(kafka_server, topic)) == 3


async def test_an_unknown_topic_is_retried_with_a_clear_reason_and_holds_up_no_other_topic(
    topic: str, url: str, unique_name: str
) -> None:
    unknown = f"{unique_name}-nowhere"
    async with KafkaDispatcher(url=url) as dispatcher:
        outcomes = await window(dispatcher, [sample(topic), sample(unknown), sample(topic)])
        began = time.monotonic()
        again = await failure(dispatcher, sample(unknown))
        assert time.monotonic() - began < 1

    assert (outcomes[0], outcomes[2]) == (None, None)
    for outcome in (outcomes[1], again):
        assert type(outcome) is ProviderError
        assert f"the cluster has no topic '{unknown}'" in str(outcome)


async def test_a_topic_that_is_created_later_is_found(
    kafka_server: KafkaServer, url: str, unique_name: str
) -> None:
    async with KafkaDispatcher(url=url) as dispatcher:
        await failure(dispatcher, sample(unique_name))
        kafka_server.create_topic(unique_name)
        held = dispatcher._link._held
        assert held is not None
        held.client._missing.clear()
        await dispatcher.dispatch(sample(unique_name))


async def create(server: KafkaServer, name: str, **configs: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=server.address)
    await admin.start()
    try:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        await admin.create_topics([NewTopic(name, 1, 1, topic_configs=settings)])
    finally:
        await admin.close()


async def test_a_message_too_large_for_the_topic_fails_permanently_and_alone(
    kafka_server: KafkaServer, url: str, unique_name: str
) -> None:
    """The broker refuses a whole batch, even one whose messages are each small enough."""
    await create(kafka_server, unique_name, max_message_bytes="2000")
    small = samples(unique_name, 30)
    large = sample(unique_name, b"x" * 3000, content_type="text/plain")
    async with KafkaDispatcher(url=url) as dispatcher:
        outcomes = await window(dispatcher, [*small[:15], large, *small[15:]], seconds=20)

    assert [at for at, outcome in enumerate(outcomes) if outcome is not None] == [15]
    assert type(outcomes[15]) is PermanentError
    assert "max.message.bytes" in str(outcomes[15])
    stored = {from_record(record).meta.event_id for record in await records(kafka_server, unique_name)}
    assert stored == {message.meta.event_id for message in small}


async def test_a_message_too_large_for_the_client_fails_permanently(topic: str, url: str) -> None:
    large = sample(topic, b"x" * 5000, content_type="text/plain")
    async with KafkaDispatcher(url=url, client_options={"max_request_size": 4000}) as dispatcher:
        outcomes = await window(dispatcher, [sample(topic), large, sample(topic)])

    assert (outcomes[0], outcomes[2]) == (None, None)
    assert type(outcomes[1]) is PermanentError
    assert "max_request_size" in str(outcomes[1])


async def test_a_producer_out_of_sequence_is_replaced(
    kafka_server: KafkaServer, topic: str, url: str
) -> None:
    """aiokafka would fail until the process is restarted."""
    messages = samples(topic, 10)
    async with KafkaDispatcher(url=url) as dispatcher:
        await dispatcher.dispatch(sample(topic))
        held = dispatcher._link._held
        assert held is not None
        held.client.producer._txn_manager._sequence_numbers[TopicPartition(topic, 0)] = 1000
        assert await window(dispatcher, messages) == [None] * 10
        assert dispatcher._link._held is not held

    stored = [from_record(record) for record in await records(kafka_server, topic)]
    assert stored[-10:] == messages


async def test_a_producer_whose_sender_ended_is_replaced(topic: str, url: str) -> None:
    """A message that such a producer accepts waits for ever."""
    async with KafkaDispatcher(url=url) as dispatcher:
        held = dispatcher._link._held
        assert held is not None
        task = held.client.producer._sender.sender_task
        task.cancel()
        await asyncio.wait([task])
        await dispatcher.dispatch(sample(topic))
        assert dispatcher._link._held is not held


async def test_a_message_is_delivered_once_all_replicas_have_it(url: str) -> None:
    async with KafkaDispatcher(url=url) as dispatcher:
        held = dispatcher._link._held
        assert held is not None
        producer = held.client.producer
        assert producer._sender._acks == -1
        assert producer._txn_manager is not None
    for name in ("acks", "enable_idempotence", "transactional_id"):
        with pytest.raises(ConfigError, match=f"the client option '{name}' cannot be given here"):
            KafkaDispatcher(url=url, client_options={name: 1})


async def test_the_applications_own_producer_is_used_and_not_closed(
    kafka_server: KafkaServer, topic: str
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka_server.address, enable_idempotence=True)
    await producer.start()
    message = sample(topic)
    async with KafkaDispatcher(client=producer) as dispatcher:
        await dispatcher.dispatch(message)
        await dispatcher.probe()
    await producer.send_and_wait(topic, b"its own")
    await producer.stop()

    assert from_record((await records(kafka_server, topic))[0]) == message


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"acks": 1}, "must have acks='all'"),
        ({"acks": "all"}, "must have enable_idempotence=True"),
        ({"transactional_id": "t"}, "is transactional"),
        ({"enable_idempotence": True, "value_serializer": str.encode}, "has a value_serializer"),
    ],
)
async def test_a_producer_with_weaker_guarantees_is_refused(options: dict[str, object], text: str) -> None:
    producer = AIOKafkaProducer(**options)
    with pytest.raises(ConfigError, match=text):
        KafkaDispatcher(client=producer)
    await producer.stop()


async def test_no_logger_shows_a_payload(topic: str, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka prints keys and values at DEBUG."""
    with caplog.at_level(logging.DEBUG):
        for name in ("aiokafka", "aiokafka.conn", "aiokafka.producer.producer"):
            caplog.set_level(logging.DEBUG, name)
        message = sample(topic, b'{"card": "4111-CANARY"}', key="KEY-CANARY")
        async with KafkaDispatcher(url=url) as dispatcher:
            await window(dispatcher, [message])

    assert "CANARY" not in caplog.text
