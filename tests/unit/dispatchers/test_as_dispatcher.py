"""What passes for a dispatcher, and what is refused before it could fail with every message."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Sequence
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from outbox_core.dispatcher import FunctionDispatcher, as_dispatcher
from outbox_core.dispatchers.fan_out import FanOut
from outbox_core.dispatchers.router import Router
from outbox_core.errors import ConfigError
from outbox_core.message import DispatchedMessage, Message
from outbox_core.relay import Relay
from outbox_core.stores.memory.store import MemoryStore
from tests.kit.memory import TABLE, put
from tests.kit.settings import QUICK


async def deliver(message: DispatchedMessage) -> None: ...


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


class Plain:
    async def dispatch(self, message: DispatchedMessage) -> None: ...


class Wrapped:
    @logged
    async def dispatch(self, message: DispatchedMessage) -> None: ...


class Handing:
    def dispatch(self, message: DispatchedMessage) -> Awaitable[None]:
        return deliver(message)


class WithDefaults:
    async def dispatch(
        self, message: DispatchedMessage, colour: str = "red", *, loud: bool = False
    ) -> None: ...


class Static:
    @staticmethod
    async def dispatch(message: DispatchedMessage) -> None: ...


class Partial:
    def __init__(self) -> None:
        self.dispatch = functools.partial(self._dispatch, "red")

    async def _dispatch(self, colour: str, message: DispatchedMessage) -> None: ...


@pytest.mark.parametrize("kind", [Plain, Wrapped, Handing, WithDefaults, Static, Partial])
def test_dispatchers(kind: Any) -> None:
    dispatcher = kind()
    assert as_dispatcher(dispatcher) is dispatcher


class Telling(Plain):
    """What does not tell is believed: what is called, takes anything, or is a function in C."""

    def __init__(self) -> None:
        self.probe = AsyncMock()
        self.dispatch_many = Mock(return_value=None)


class Lenient(Plain):
    def probe(self, *arguments: Any) -> Awaitable[None]:
        return deliver(*arguments)

    async def dispatch_many(self, *messages: Any, **more: Any) -> Any: ...


@pytest.mark.parametrize("kind", [Telling, Lenient])
def test_dispatchers_with_probes_and_windows(kind: Any) -> None:
    dispatcher = kind()
    assert as_dispatcher(dispatcher) is dispatcher


class Called:
    """An object that is called, and opened before and closed after."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __aenter__(self) -> Called:
        self.seen.append("opened")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.seen.append("closed")

    async def __call__(self, message: DispatchedMessage) -> None:
        self.seen.append("called")


@pytest.mark.asyncio
@pytest.mark.parametrize("inside", [lambda called: called, lambda called: Router({"a.**": called})])
async def test_what_is_called_and_managed_is_opened_and_closed_with_the_relay(inside: Any) -> None:
    store, called = MemoryStore(), Called()
    await put(store, Message("a.b.v1", 1))
    assert await Relay(lambda: store, table=TABLE, dispatcher=inside(called), **QUICK).drain() == 1
    assert called.seen == ["opened", "called", "closed"]


@pytest.mark.parametrize("function", [deliver, functools.partial(deliver), Plain().dispatch])
def test_functions(function: Any) -> None:
    assert isinstance(as_dispatcher(function), FunctionDispatcher)


class Synchronous:
    def dispatch(self, message: DispatchedMessage) -> None: ...


class TakesNothing:
    async def dispatch(self) -> None: ...


class TakesMore:
    async def dispatch(self, message: DispatchedMessage, table: str) -> None: ...


class ByName:
    async def dispatch(self, *, message: DispatchedMessage) -> None: ...


class Yielding:
    async def dispatch(self, message: DispatchedMessage) -> Any:
        yield


class SynchronousProbe(Plain):
    def probe(self) -> None: ...


class YieldingProbe(Plain):
    async def probe(self) -> Any:
        yield


class ProbeWithArgument(Plain):
    async def probe(self, timeout: float) -> None: ...


class SynchronousWindows(Plain):
    def dispatch_many(self, messages: Sequence[DispatchedMessage], *, deadline: float) -> Any: ...


class WindowsWithoutDeadline(Plain):
    async def dispatch_many(self, messages: Sequence[DispatchedMessage]) -> Any: ...


class WindowsOfNothing(Plain):
    async def dispatch_many(self, *, deadline: float) -> Any: ...


class AsynchronousRouter(Plain):
    async def route(self, topic: str) -> Plain:
        return self


class CalledRouter(Plain):
    def __init__(self) -> None:
        self.route = Called()


async def takes_two(message: DispatchedMessage, table: str) -> None: ...


def synchronous(message: DispatchedMessage) -> None: ...


WRONG = [
    (Synchronous(), r"Synchronous\.dispatch is not asynchronous: it must be `async def`"),
    (TakesNothing(), r"TakesNothing\.dispatch must take one argument, the message, and takes \(\)"),
    (TakesMore(), r"TakesMore\.dispatch must take one argument, .* and takes \(message: .*, table: .*\)"),
    (ByName(), r"ByName\.dispatch must take one argument"),
    (Yielding(), r"Yielding\.dispatch is a generator"),
    (SynchronousProbe(), r"SynchronousProbe\.probe is not asynchronous: it must be `async def`"),
    (YieldingProbe(), r"YieldingProbe\.probe is a generator"),
    (ProbeWithArgument(), r"ProbeWithArgument\.probe must take no argument, and takes \(timeout: .*\)"),
    (SynchronousWindows(), r"SynchronousWindows\.dispatch_many is not asynchronous"),
    (
        WindowsWithoutDeadline(),
        r"dispatch_many must take the messages, and deadline as a keyword, and takes \(messages: .*\)",
    ),
    (WindowsOfNothing(), r"dispatch_many must take the messages, .* and takes \(\*, deadline: .*\)"),
    (
        AsynchronousRouter(),
        r"AsynchronousRouter\.route is asynchronous, and nobody would wait for it: .* plain",
    ),
    (CalledRouter(), r"CalledRouter\.route is asynchronous"),
    (takes_two, r"takes_two must take one argument, the message, and takes \(message: .*, table: .*\)"),
    (synchronous, r"synchronous is not a dispatcher: pass an object with `async def dispatch\(message\)`"),
    (Plain, r"Plain is a class: pass an instance of it"),
    (7, "int is not a dispatcher"),
]


@pytest.mark.parametrize(("value", "says"), WRONG)
def test_what_could_never_deliver_is_refused(value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        as_dispatcher(value)


@pytest.mark.parametrize(("value", "says"), WRONG[:1])
def test_targets_are_held_to_the_same(value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Router({"a.**": value})
    with pytest.raises(ConfigError, match=says):
        FanOut([value])
