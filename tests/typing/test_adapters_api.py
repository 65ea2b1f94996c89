"""The types users of the adapters see, checked by mypy and pyright."""

from __future__ import annotations

from typing import assert_type

from outbox_amqp import AmqpAddress
from outbox_kafka import KafkaAddress
from outbox_nats import NatsAddress


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
