"""An address where a broker of another protocol answers: it is reported as such, within bounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from outbox_amqp import AmqpDispatcher
from outbox_core.adapter.broker import BrokerDispatcher
from outbox_core.errors import BrokerUnavailable
from outbox_core.testing.contracts.samples import sample
from outbox_kafka import KafkaDispatcher
from outbox_nats import NatsDispatcher
from tests.integration.adapters.driving import failure

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.nats, pytest.mark.amqp]

CONNECT_SECONDS = 2.0


@pytest.mark.parametrize(
    ("kind", "fixture"),
    [
        (AmqpDispatcher, "kafka_server"),
        (AmqpDispatcher, "nats_server"),
        (KafkaDispatcher, "nats_server"),
        (KafkaDispatcher, "rabbitmq_server"),
        (NatsDispatcher, "kafka_server"),
        (NatsDispatcher, "rabbitmq_server"),
    ],
)
async def test_another_kind_of_broker_is_reported_as_unavailable_in_time(
    kind: Callable[..., BrokerDispatcher[Any]],
    fixture: str,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = request.getfixturevalue(fixture).address.rstrip("/").rpartition(":")[2]
    began = time.monotonic()
    async with kind(f"127.0.0.1:{port}", connect_timeout=CONNECT_SECONDS) as dispatcher:
        assert "something other than" in caplog.text
        error = await failure(dispatcher, sample("a"))
    assert time.monotonic() - began < 4 * CONNECT_SECONDS

    assert type(error) is BrokerUnavailable
    assert "something other than" in str(error)
    assert f"127.0.0.1:{port}" in str(error)
    assert "KafkaConnectionError KafkaConnectionError" not in str(error)
