"""What the event bus takes as a handler, and what it refuses at once."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

from outbox_core.dispatchers.event_bus import EventBus
from outbox_core.errors import (
    ConfigError,
    InvalidTopicPattern,
)
from outbox_core.message import DispatchedMessage, Meta
from outbox_core.testing.contracts.samples import sample

pytestmark = pytest.mark.asyncio

TOPIC = "orders.order.placed.v1"


async def nothing(message: DispatchedMessage) -> None: ...


class Service:
    def __init__(self) -> None:
        self.got: list[object] = []

    async def method(self, message: DispatchedMessage) -> None:
        self.got.append(message)

    async def with_meta(self, payload: dict[str, Any], meta: Meta) -> None:
        self.got.append((payload, meta.topic))

    async def __call__(self, meta: Meta, payload: bytes) -> None:
        self.got.append((meta.topic, payload))


async def test_methods_callable_objects_and_partials_are_handlers() -> None:
    service, bus, message = Service(), EventBus(), sample(TOPIC, b'{"n": 1}')

    async def partly(extra: str, message: DispatchedMessage) -> None:
        service.got.append(extra)

    for handler in (service.method, service.with_meta, service, functools.partial(partly, "extra")):
        bus.subscribe(TOPIC, handler)
    await bus.dispatch(message)
    assert len(service.got) == 4
    for expected in (message, ({"n": 1}, TOPIC), (TOPIC, b'{"n": 1}'), "extra"):
        assert expected in service.got


async def test_without_annotations_one_parameter_is_the_message_and_two_are_payload_and_meta() -> None:
    bus, got = EventBus(), list[Any]()
    message = sample(TOPIC, b"[1]")
    bus.subscribe(TOPIC, lambda message: got.append(message))
    bus.subscribe(TOPIC, lambda payload, meta: got.append((payload, meta)))
    bus.subscribe(TOPIC, lambda *arguments: got.append(arguments))
    await bus.dispatch(message)
    assert len(got) == 3
    for expected in (message, ([1], message.meta), (message,)):
        assert expected in got


def no_arguments() -> None: ...


def two_payloads(first: str, second: int) -> None: ...


def needs_more(message: DispatchedMessage, *, database: str) -> None: ...


def hidden(order: Order) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def unusable(order: threading.Thread) -> None: ...


def yielding(message: DispatchedMessage) -> Any:
    yield message


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (no_arguments, "takes no argument"),
        (two_payloads, "first and second"),
        (needs_more, "needs database="),
        (hidden, "'Order' is not defined"),
        (unusable, "cannot be made into Thread"),
        (yielding, "is a generator"),
        ("orders", "must be callable"),
    ],
)
async def test_what_could_not_handle_a_message_is_refused_at_once(handler: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        EventBus().subscribe(TOPIC, handler)


async def test_other_mistakes_are_refused_at_once() -> None:
    bus = EventBus()
    bus.subscribe(TOPIC, nothing)
    with pytest.raises(ConfigError, match="already subscribed"):
        bus.subscribe(TOPIC, nothing)
    with pytest.raises(InvalidTopicPattern):
        bus.subscribe("orders.>", nothing)
    for timeout in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="timeout"):
            bus.subscribe("**", nothing, timeout=timeout)
        with pytest.raises(ConfigError, match="timeout"):
            EventBus(timeout=timeout)
    with pytest.raises(ConfigError, match="threads"):
        EventBus(threads=0)
