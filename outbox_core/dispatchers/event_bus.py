"""Handlers in the same process, as a dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from outbox_core.adapter.arguments import shown_name
from outbox_core.dispatchers.failures import joined
from outbox_core.dispatchers.handlers import Handler, Subscription, subscription
from outbox_core.errors import ConfigError, HandlerCancelled, NoSubscribers
from outbox_core.topic import TopicPattern

if TYPE_CHECKING:
    from outbox_core.meta import DispatchedMessage

DEFAULT_TIMEOUT: Final = 20.0
DEFAULT_THREADS: Final = 16
MAX_TIMEOUT: Final = 24 * 3600.0
"""Far more than any relay leaves a dispatch."""
_REMEMBERED_TOPICS: Final = 1024

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class EventBus:
    """Gives each message to every handler subscribed to its topic, at the same time; it has no queue of its own.

    A message is acknowledged when every handler has returned None. When some fail, **all** of them run again on the
    retry, so each must be idempotent: ``meta.event_id`` is the same every time.

    A synchronous handler runs in a thread, ``threads`` of them at most, so that it does not hold up the event loop; it
    must be safe to run there. ``timeout`` is in seconds and holds for each handler that has none of its own: a little
    less than the ``dispatch_timeout`` of a relay, so that one slow handler fails by itself. None means that only the
    relay's holds. A synchronous handler whose time is up goes on in its thread, where nothing can stop it.
    """

    def __init__(
        self,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        threads: int = DEFAULT_THREADS,
        name: str = "EventBus",
    ) -> None:
        self.name = shown_name(name) or "EventBus"
        self._timeout = _checked(timeout)
        self._threads = anyio.CapacityLimiter(_count("threads", threads))
        self._subscriptions: list[Subscription] = []
        self._by_topic: dict[str, tuple[Subscription, ...]] = {}

    def subscribe(
        self, pattern: str | TopicPattern, handler: Handler, *, timeout: float | None = None
    ) -> Subscription:
        """Give the messages of a topic, or of all that a pattern matches, to a handler, from now on.

        The handler takes the `DispatchedMessage`, or the payload and the `Meta`, each told by its annotation:
        ``async def placed(order: OrderPlaced, meta: Meta)``. ``OrderPlaced`` may be a dataclass, a pydantic model, or
        plain JSON types; a payload that does not fit is dead at once. Without annotations a single parameter is the
        message, and of two the first is the parsed JSON and ``meta`` the `Meta`. A handler with several patterns that
        match runs once for each.
        """
        parsed = TopicPattern.parse(pattern)
        if any(one.pattern == parsed and one.handler == handler for one in self._subscriptions):
            raise ConfigError(f"the handler is already subscribed to {str(parsed)!r}; it would run twice")
        limit = self._timeout if timeout is None else _checked(timeout)
        added = subscription(parsed, handler, limit)
        self._subscriptions.append(added)
        self._by_topic.clear()
        return added

    def on(
        self, pattern: str | TopicPattern, *, timeout: float | None = None
    ) -> Callable[[AnyHandler], AnyHandler]:
        """`subscribe` as a decorator, which returns the function as it is."""
        TopicPattern.parse(pattern)
        _checked(timeout)

        def decorate(handler: AnyHandler) -> AnyHandler:
            self.subscribe(pattern, handler, timeout=timeout)
            return handler

        return decorate

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop giving messages to a handler; those it already has are not affected. Does nothing the second time."""
        self._subscriptions = [one for one in self._subscriptions if one is not subscription]
        self._by_topic.clear()

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        """Run every handler of the message's topic and wait for all of them, whatever becomes of the others.

        Raises `NoSubscribers` when there is none; what a handler raised, when one failed; an ``ExceptionGroup`` when
        several did, which is an `AllPermanent` when no retry can help any of them.
        """
        handlers = self._matching(message.meta.topic)
        if not handlers:
            raise NoSubscribers(message.meta.topic)
        # Whoever ends without an outcome was cancelled from inside, which must not look like success.
        outcomes: list[Exception | None] = [HandlerCancelled(one.name) for one in handlers]

        async def run(at: int, handler: Subscription) -> None:
            try:
                await handler.call(message, self._threads)
            except Exception as error:  # whatever one raises is its outcome, and costs no other
                outcomes[at] = error
            else:
                outcomes[at] = None

        async with anyio.create_task_group() as tasks:
            for at, handler in enumerate(handlers):
                tasks.start_soon(run, at, handler)
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures:
            raise joined(f"{len(failures)} of {len(handlers)} handlers failed", failures)

    async def publish(self, message: DispatchedMessage, /) -> None:
        """The same as `dispatch`, for use without a relay."""
        await self.dispatch(message)

    def __repr__(self) -> str:
        return f"EventBus({len(self._subscriptions)} subscriptions)"

    def _matching(self, topic: str) -> tuple[Subscription, ...]:
        found = self._by_topic.get(topic)
        if found is None:
            found = tuple(one for one in self._subscriptions if one.pattern.matches(topic))
            if len(self._by_topic) >= _REMEMBERED_TOPICS:
                self._by_topic.clear()
            self._by_topic[topic] = found
        return found


def _checked(timeout: object) -> float | None:
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout <= MAX_TIMEOUT:
        raise ConfigError(
            f"timeout must be a number of seconds above 0 and at most {MAX_TIMEOUT:g}, or None, got {timeout!r}"
        )
    return float(timeout)


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value
