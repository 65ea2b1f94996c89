"""The contract of whatever takes messages to their destination."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import entry_points
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from outbox_core.errors import ConfigError, InvalidDispatcherReturn, InvalidUrl, MissingExtra
from outbox_core.extras import install_command
from outbox_core.url import DispatcherUrl

if TYPE_CHECKING:
    from outbox_core.message import DispatchedMessage

Outcome: TypeAlias = BaseException | None
"""What became of one message: None when the destination has acknowledged it."""

ENTRY_POINTS: Final = "outbox.dispatchers"
"""The group of entry points by which an adapter declares the URL schemes it dispatches to."""
_EXTRAS: Final = {"kafka": "kafka", "nats": "nats", "amqp": "amqp", "amqps": "amqp"}
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
_AWAITABLE: Final = re.compile(r"\b(?:Awaitable|Coroutine|Future|Task)\b")


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

        A failure of one message does not cost the others: it is returned, as that message's outcome. What is raised is
        the outcome of every message of the window, so that a `PermanentError` raised makes all of them dead. What is
        still open at the deadline is `DispatchTimeout`.
        """
        ...


@runtime_checkable
class Probing(Protocol):
    """A dispatcher that can ask its broker for a sign of life."""

    async def probe(self) -> None:
        """A cheap round trip that publishes nothing; raises when the broker does not answer."""
        ...


@runtime_checkable
class Inspecting(Protocol):
    """A dispatcher that can ask its broker whether there is a place for a topic."""

    async def inspect(self, topic: str, /) -> None:
        """Return when messages of the topic have somewhere to go, as far as the broker tells; raises when they have
        not, or when the broker does not answer. Publishes nothing."""
        ...


@runtime_checkable
class Routing(Protocol):
    """A dispatcher that hands each message to one of several others, each with an outage of its own."""

    def route(self, topic: str, /) -> Dispatcher:
        """The dispatcher for a topic, always the same; itself, to take the message by its own ``dispatch``.

        The relay remembers the answers for 10,000 topics, and keeps one breaker per leaf. What it raises fails the
        message, and so do routers that lead in a circle, or more than 10 of them one behind the other.
        """
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
        self.function = function
        self.__name__ = getattr(function, "__qualname__", type(function).__qualname__)

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        returned = await cast("Callable[[DispatchedMessage], Awaitable[object]]", self.function)(message)
        if returned is not None:
            raise InvalidDispatcherReturn(self.__name__, returned)


class ManagedFunctionDispatcher(FunctionDispatcher):
    """The same for an object that is called, and has something to open and close."""

    def __init__(self, function: Callable[[DispatchedMessage], Awaitable[None]], managed: Managed) -> None:
        super().__init__(function)
        self._managed = managed

    async def __aenter__(self) -> object:
        return await self._managed.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object:
        return await self._managed.__aexit__(kind, error, trace)


def as_dispatcher(value: Dispatcher | Callable[[DispatchedMessage], Awaitable[None]]) -> Dispatcher:
    """Accept a dispatcher or a plain asynchronous function."""
    if isinstance(value, type):
        raise ConfigError(
            f"{value.__qualname__} is a class: pass an instance of it, such as {value.__qualname__}(…)"
        )
    if isinstance(value, Dispatcher):
        check_dispatcher(value)
        return value
    shown = getattr(value, "__qualname__", type(value).__qualname__)
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__):
        _check_asynchronous(shown, value)
        takes_one(shown, value, "the message")
        called: object = value
        if isinstance(called, Managed):
            return ManagedFunctionDispatcher(value, called)
        return FunctionDispatcher(value)
    raise ConfigError(
        f"{shown} is not a dispatcher: pass an object with `async def dispatch(message)` or an async function"
    )


def check_dispatcher(value: Dispatcher) -> None:
    """Refuse what could never deliver a message, or never answer a probe: a generator, a synchronous function, one that
    takes other arguments; and a router that would have to be waited for.

    Whatever does not tell, such as a function in C or an object that is called, is believed.
    """
    check_dispatches(value)
    if isinstance(value, Probing):
        name = f"{type(value).__qualname__}.probe"
        _check_asynchronous(name, value.probe)
        _takes(f"{name} must take no argument,", value.probe)
    if isinstance(value, Routing) and (
        inspect.iscoroutinefunction(value.route) or inspect.iscoroutinefunction(type(value.route).__call__)
    ):
        raise ConfigError(
            f"{type(value).__qualname__}.route is asynchronous, and nobody would wait for it: it must be a plain"
            " function that returns a dispatcher at once; have at hand what it would look up before the relay starts"
        )


def check_dispatches(value: Dispatcher) -> None:
    """The same, of what delivers messages alone."""
    kind = type(value).__qualname__
    _check_asynchronous(f"{kind}.dispatch", value.dispatch)
    takes_one(f"{kind}.dispatch", value.dispatch, "the message")
    if isinstance(value, BatchDispatcher):
        _check_asynchronous(f"{kind}.dispatch_many", value.dispatch_many)
        what = "must take the messages, and deadline as a keyword,"
        _takes(f"{kind}.dispatch_many {what}", value.dispatch_many, None, deadline=0.0)


def _check_asynchronous(name: str, function: Callable[..., object]) -> None:
    inner = inspect.unwrap(function)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise ConfigError(f"{name} is a generator: it must be `async def` without yield")
    tells = inspect.isroutine(inner) and not inspect.isbuiltin(inner)
    if tells and not inspect.iscoroutinefunction(inner) and not _gives_awaitable(inner):
        raise ConfigError(
            f"{name} is not asynchronous: it must be `async def`, or be annotated to return an Awaitable"
        )


def takes_one(what: str, function: Callable[..., object], argument: str) -> None:
    """Refuse a function that cannot be called with one argument. One that does not tell is believed."""
    _takes(f"{what} must take one argument, {argument},", function, None)


def _takes(rule: str, function: Callable[..., object], *arguments: object, **named: object) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments, **named)
    except TypeError:
        taken = signature.replace(return_annotation=signature.empty)
        raise ConfigError(f"{rule} and takes {taken}") from None


def _gives_awaitable(function: Callable[..., object]) -> bool:
    annotation: object = getattr(function, "__annotations__", {}).get("return")
    return _AWAITABLE.search(annotation if isinstance(annotation, str) else repr(annotation)) is not None


def load_dispatcher(url: str) -> Dispatcher:
    """The dispatcher for a URL, made by the installed package that declares its scheme; not opened yet.

    A package declares a scheme by an entry point of the group ``outbox.dispatchers``: its name is the scheme, or the
    part of it before a ``+``, and its object a function that takes the URL. Raises `MissingExtra` with the command
    that installs an adapter of this project, and `InvalidUrl` for any other scheme that nobody declares.
    """
    given: object = url
    scheme = given.partition("://")[0] if isinstance(given, str) and "://" in given else ""
    if _SCHEME.fullmatch(scheme) is None:
        scheme = DispatcherUrl.parse(url).scheme  # says what is wrong with it
    declared = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    family = scheme.partition("+")[0]
    entry = declared.get(scheme) or declared.get(family)
    if entry is None:
        extra = _EXTRAS.get(family)
        if extra is not None:
            raise MissingExtra(
                f"dispatching to {scheme}://", f"outbox-{extra}", extra, install_command(extra)
            )
        known = ", ".join(sorted(declared)) or "none"
        raise InvalidUrl(
            scheme, f"no installed package dispatches to {scheme!r}; the known schemes are {known}"
        )
    dispatcher: object = entry.load()(url)
    if not isinstance(dispatcher, Dispatcher):
        raise ConfigError(
            f"the entry point {entry.name} = {entry.value} made a {type(dispatcher).__name__}, which has no dispatch()"
        )
    return dispatcher


def name_of(dispatcher: object) -> str:
    """How a dispatcher is called in events and metrics: its own ``name``, or its class or function."""
    name: Any = getattr(dispatcher, "name", None) or getattr(dispatcher, "__name__", None)
    return name if isinstance(name, str) else type(dispatcher).__name__
