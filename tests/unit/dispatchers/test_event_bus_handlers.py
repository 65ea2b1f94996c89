"""What the event bus takes as a handler, and what it refuses at once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable
from typing import Any

import pytest

from outbox_core.dispatchers.event_bus import EventBus
from outbox_core.dispatchers.fan_out import FanOut
from outbox_core.dispatchers.router import Router
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


def returning(message: DispatchedMessage) -> int:
    return 1


async def returning_later(message: DispatchedMessage) -> bool:
    return True


def handing_on(message: DispatchedMessage) -> Awaitable[None]:
    return nothing(message)


def unreadable(message: threading.NoSuchThing) -> None: ...  # type: ignore[name-defined]


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
        (returning, "handler returning is annotated to return int; it must return None"),
        (returning_later, "annotated to return bool"),
        (handing_on, "annotated to return collections.abc.Awaitable"),
        (unreadable, "annotations of unreadable cannot be read: AttributeError"),
        (Service, "handler Service is a class: .* pass an instance"),
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
    wrong_timeouts: list[Any] = [0, -1, float("inf"), float("nan"), "5", True, 10**400, [1]]
    for timeout in wrong_timeouts:
        with pytest.raises(ConfigError, match="timeout must be a number of seconds above 0"):
            bus.subscribe("**", nothing, timeout=timeout)
        with pytest.raises(ConfigError, match="timeout must be"):
            bus.on("**", timeout=timeout)
        with pytest.raises(ConfigError, match="timeout must be"):
            EventBus(timeout=timeout)
    wrong_threads: list[Any] = [0, -1, "5", 2.5, True, None]
    for threads in wrong_threads:
        with pytest.raises(ConfigError, match="threads must be a whole number of at least 1, got "):
            EventBus(threads=threads)
    with pytest.raises(ConfigError, match="name must be a str, got int"):
        EventBus(name=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "kafka://user:s3cret@host:9092",
        "nats://s3cret@host",
        "user:s3cret@host",
        "orders password=s3cret",
        "orders?token=s3cret",
    ],
)
async def test_a_name_with_credentials_is_refused_and_not_shown(name: str) -> None:
    for make in (
        lambda: EventBus(name=name),
        lambda: Router({"**": nothing}, name=name),
        lambda: FanOut([nothing], name=name),
    ):
        with pytest.raises(ConfigError, match="seems to hold credentials") as raised:
            make()
        assert "s3cret" not in str(raised.value)


async def test_a_name_is_one_short_line() -> None:
    assert EventBus(name="orders (eu), 2nd: v1").name == "orders (eu), 2nd: v1"
    for name in ("a\nb", "x" * 201):
        with pytest.raises(ConfigError, match="one line of at most 200 characters"):
            EventBus(name=name)
