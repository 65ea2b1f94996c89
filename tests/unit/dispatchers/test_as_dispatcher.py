"""What passes for a dispatcher, and what is refused before it could fail with every message."""

from __future__ import annotations

import functools
from collections.abc import Awaitable
from typing import Any

import pytest

from outbox_core.dispatcher import FunctionDispatcher, as_dispatcher
from outbox_core.dispatchers.fan_out import FanOut
from outbox_core.dispatchers.router import Router
from outbox_core.errors import ConfigError
from outbox_core.message import DispatchedMessage


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


async def takes_two(message: DispatchedMessage, table: str) -> None: ...


def synchronous(message: DispatchedMessage) -> None: ...


WRONG = [
    (Synchronous(), r"Synchronous\.dispatch is not asynchronous: it must be `async def`"),
    (TakesNothing(), r"TakesNothing\.dispatch must take one argument, the message, and takes \(\)"),
    (TakesMore(), r"TakesMore\.dispatch must take one argument, .* and takes \(message: .*, table: .*\)"),
    (ByName(), r"ByName\.dispatch must take one argument"),
    (Yielding(), r"Yielding\.dispatch is a generator"),
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
