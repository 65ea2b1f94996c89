"""The contract of whatever takes messages to their destination."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

from outbox_core.errors import ConfigError, InvalidDispatcherReturn

if TYPE_CHECKING:
    from outbox_core.message import DispatchedMessage

Outcome: TypeAlias = BaseException | None
"""What became of one message: None when the destination has acknowledged it."""


@runtime_checkable
class Dispatcher(Protocol):
    """Takes one message to its destination.

    Returning None means the destination has acknowledged the message; raising means it was not delivered, as far as is
    known. Raise `PermanentError` when no retry can help, `RetryAfter` to choose the delay, `BrokerUnavailable` when the
    destination, not the message, is at fault; anything else is retried with backoff. May be called for many messages at
    once, never for two of the same key. Cancelled when it takes longer than the relay's ``dispatch_timeout``.

    A dispatcher that is an asynchronous context manager is entered when the relay starts and left when it stops.
    """

    async def dispatch(self, message: DispatchedMessage, /) -> None: ...


@runtime_checkable
class BatchDispatcher(Dispatcher, Protocol):
    """A dispatcher that can pipeline a window of messages."""

    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        """Dispatch a window and return one outcome per message, in order, by ``deadline`` (of ``anyio.current_time``).

        A failure of one message does not cost the others. What is still open at the deadline is `DispatchTimeout`.
        """
        ...


@runtime_checkable
class Probing(Protocol):
    """A dispatcher that can ask its broker for a sign of life."""

    async def probe(self) -> None:
        """A cheap round trip that publishes nothing; raises when the broker does not answer."""
        ...


@runtime_checkable
class Routing(Protocol):
    """A dispatcher that hands each message to one of several others, each with an outage of its own."""

    def route(self, topic: str, /) -> Dispatcher:
        """The dispatcher for a topic. The relay asks once per topic and keeps one breaker per leaf."""
        ...


@runtime_checkable
class Managed(Protocol):
    """A dispatcher with something to open and close."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


class FunctionDispatcher:
    """A plain asynchronous function as a dispatcher. It must return None: anything else looks like a mistake."""

    def __init__(self, function: Callable[[DispatchedMessage], Awaitable[None]]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__qualname__", type(function).__qualname__)

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        returned = await cast("Callable[[DispatchedMessage], Awaitable[object]]", self._function)(message)
        if returned is not None:
            raise InvalidDispatcherReturn(self.__name__, returned)


def as_dispatcher(value: Dispatcher | Callable[[DispatchedMessage], Awaitable[None]]) -> Dispatcher:
    """Accept a dispatcher or a plain asynchronous function."""
    if isinstance(value, Dispatcher):
        return value
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__):
        return FunctionDispatcher(value)
    shown = getattr(value, "__qualname__", type(value).__qualname__)
    raise ConfigError(
        f"{shown} is not a dispatcher: pass an object with `async def dispatch(message)` or an async function"
    )


def name_of(dispatcher: object) -> str:
    """How a dispatcher is called in events and metrics: its own ``name``, or its class or function."""
    name: Any = getattr(dispatcher, "name", None) or getattr(dispatcher, "__name__", None)
    return name if isinstance(name, str) else type(dispatcher).__name__
