"""Handlers: what a function takes, read from its parameters, and calling it so that nothing passes for success."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Never, NoReturn, TypeAlias, cast

import anyio
import anyio.to_thread

from outbox_core.dispatchers.parsing import payload_parser, resolved_hints
from outbox_core.errors import ConfigError, HandlerTimeout, InvalidHandlerReturn
from outbox_core.meta import DispatchedMessage, Meta

if TYPE_CHECKING:
    from anyio import CapacityLimiter

    from outbox_core.topic import TopicPattern

Handler: TypeAlias = Callable[..., Awaitable[None] | None]
"""A function, synchronous or not, of a `DispatchedMessage`, or of the payload as a type of its own and a `Meta`."""

_Argument: TypeAlias = Callable[[DispatchedMessage], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Subscription:
    """One handler of one pattern."""

    pattern: TopicPattern
    handler: Handler
    name: str
    timeout: float | None
    """Seconds; None when only the relay's own limit holds."""
    is_async: bool
    arguments: tuple[_Argument, ...]

    async def call(self, message: DispatchedMessage, threads: CapacityLimiter) -> None:
        """Run the handler to its end. Raises what it raises, `HandlerTimeout`, or `InvalidHandlerReturn`."""
        arguments = [argument(message) for argument in self.arguments]
        returned: object = None
        with anyio.move_on_after(self.timeout) as scope:
            if self.is_async:
                returned = await self._awaited(arguments)
            else:
                # Abandoned when time is up, since a thread cannot be stopped; it keeps its place in the limit.
                call = functools.partial(self.handler, *arguments)
                returned = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=threads)
        if scope.cancelled_caught and self.timeout is not None:
            raise HandlerTimeout(self.name, self.timeout)
        if returned is not None:
            if inspect.iscoroutine(returned):
                returned.close()  # otherwise it warns later, far from here, that nobody awaited it
            raise InvalidHandlerReturn(self.name, returned)

    async def _awaited(self, arguments: list[Any]) -> object:
        handler = cast("Callable[..., Awaitable[object]]", self.handler)
        return await handler(*arguments)


def subscription(pattern: TopicPattern, handler: Handler, timeout: float | None) -> Subscription:
    """Read a handler's parameters. Raises `ConfigError` for what could not be called with a message."""
    name = name_of_handler(handler)
    if not callable(handler):
        raise ConfigError(f"the handler of {str(pattern)!r} must be callable, got {type(handler).__name__}")
    if isinstance(handler, type):
        raise ConfigError(
            f"the handler {name} is a class: calling it would only make an object; pass an instance that can be"
            " called, or a method of one"
        )
    function = _function(handler)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"the handler {name} is a generator: calling it would do nothing; remove its yield")
    return Subscription(
        pattern=pattern,
        handler=handler,
        name=name,
        timeout=timeout,
        is_async=inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(function),
        arguments=_arguments(handler, function, name),
    )


def name_of_handler(handler: object) -> str:
    """How a handler is called in errors."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(handler, "__qualname__", type(handler).__qualname__)


def _function(handler: Handler) -> Callable[..., Any]:
    """The function with the annotations: of a partial the one it wraps, of a callable object its ``__call__``."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if inspect.isroutine(handler):
        return handler
    return type(handler).__call__


def _arguments(handler: Handler, function: Callable[..., Any], name: str) -> tuple[_Argument, ...]:
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except ValueError:  # a function written in C does not tell
        return (_message,)
    hints = resolved_hints(function, name)
    if not any(hints.get("return") is kind for kind in _NOTHING):
        raise ConfigError(
            f"the handler {name} is annotated to return {_shown(hints['return'])}; it must return None when it is done,"
            " and raise otherwise"
        )
    taken = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    needed = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if needed:
        raise ConfigError(f"the handler {name} needs {needed[0].name}=, which no message has")
    if not taken:
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
            return (_message,)
        raise ConfigError(f"the handler {name} takes no argument; it must take the message, or its payload")
    arguments = [_argument(one, hints.get(one.name), alone=len(taken) == 1) for one in taken]
    payloads = [one.name for one, argument in zip(taken, arguments, strict=True) if argument not in _PLAIN]
    if len(payloads) > 1:
        raise ConfigError(
            f"the handler {name} takes {' and '.join(payloads)}; of a payload, a Meta and a DispatchedMessage it may"
            " take one each, told apart by their annotations"
        )
    return tuple(arguments)


def _argument(parameter: inspect.Parameter, kind: Any, *, alone: bool) -> _Argument:
    if kind is DispatchedMessage or (kind is None and alone):
        return _message
    if kind is Meta or (kind is None and parameter.name == "meta"):
        return _meta
    return payload_parser(Any if kind is None else kind)


def _message(message: DispatchedMessage) -> DispatchedMessage:
    return message


def _meta(message: DispatchedMessage) -> Meta:
    return message.meta


def _shown(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else str(kind)


_NOTHING: Final = (None, type(None), Any, object, NoReturn, Never)
"""What a handler may be annotated to return: None, or nothing that tells."""
_PLAIN = (_message, _meta)
