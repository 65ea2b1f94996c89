"""The types users of the adapters see, checked by mypy and pyright."""

from __future__ import annotations

from typing import assert_type

from outbox_amqp import AmqpAddress, AmqpDispatcher
from outbox_core.dispatcher import BatchDispatcher, Dispatcher, Managed, Probing
from outbox_core.url import DispatcherUrl
from outbox_kafka import KafkaAddress, KafkaDispatcher
from outbox_nats import NatsAddress, NatsDispatcher


def test_kafka() -> None:
    address = assert_type(KafkaAddress.parse("kafka://localhost"), KafkaAddress)
    assert_type(address.bootstrap_servers, str)
    assert_type(address.client_id, str | None)
    assert_type(address.client_arguments(), dict[str, object])


def test_nats() -> None:
    address = assert_type(NatsAddress.parse("nats://localhost"), NatsAddress)
    assert_type(address.servers, tuple[str, ...])
    assert_type(address.stream, str | None)
    assert_type(address.client_arguments(), dict[str, object])


def test_amqp() -> None:
    address = assert_type(AmqpAddress.parse("amqp://localhost"), AmqpAddress)
    assert_type(address.server, str)
    assert_type(address.exchange, str)
    assert_type(address.client_arguments(), dict[str, object])


def test_dispatchers() -> None:
    url = DispatcherUrl.parse("nats://localhost")
    nats = assert_type(NatsDispatcher.from_url(url), NatsDispatcher)
    kafka = assert_type(KafkaDispatcher(url="kafka://localhost", destinations={"a.**": "b"}), KafkaDispatcher)
    amqp = assert_type(AmqpDispatcher(url="amqp://localhost", destinations=_destination), AmqpDispatcher)
    dispatchers: list[Dispatcher] = [nats, kafka, amqp]
    batches: list[BatchDispatcher] = [nats, kafka, amqp]
    probing: list[Probing] = [nats, kafka, amqp]
    managed: list[Managed] = [nats, kafka, amqp]
    assert len(dispatchers) == len(batches) == len(probing) == len(managed)
    assert_type(nats.name, str)
    assert_type(nats.duplicates, int)


def _destination(topic: str) -> tuple[str, str]:
    return "events", topic
