"""One dispatcher made of several, chosen by topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, cast

from outbox_core.adapter.arguments import shown_name
from outbox_core.dispatcher import Dispatcher, as_dispatcher, name_of
from outbox_core.dispatchers.targets import Targets
from outbox_core.errors import ConfigError, InvalidDispatcherReturn, NoRoute
from outbox_core.topic import TopicPattern

if TYPE_CHECKING:
    from typing import Self

    from outbox_core.meta import DispatchedMessage

Target: TypeAlias = "Dispatcher | Callable[[DispatchedMessage], Awaitable[None]]"


class Router:
    """Sends each message to the dispatcher of the first pattern, in the order given, that matches its topic.

        Router({"orders.**": kafka, "mail.**": nats}, default=bus)

    What matches none goes to ``default``; without one it fails with `NoRoute`, and is retried, since a deployment can
    mend that. In a relay each target has an outage of its own: one that is away does not hold up the others. Opened and
    closed with its targets, each of them once.
    """

    def __init__(
        self, routes: Mapping[str, Target], *, default: Target | None = None, name: str = "Router"
    ) -> None:
        if not isinstance(routes, Mapping):
            raise ConfigError(
                f"routes must be a mapping of topic patterns to dispatchers, got {type(routes).__name__}"
            )
        if not routes and default is None:
            raise ConfigError("a Router needs a route or a default; without either it delivers nothing")
        self.name = shown_name(name) or "Router"
        self._routes = [(TopicPattern.parse(text), as_dispatcher(target)) for text, target in routes.items()]
        self._default = None if default is None else as_dispatcher(default)
        everyone = [target for _, target in self._routes]
        self._targets = Targets(everyone if self._default is None else [*everyone, self._default])

    def route(self, topic: str, /) -> Dispatcher:
        """The dispatcher for a topic; raises `NoRoute` when there is none."""
        for pattern, target in self._routes:
            if pattern.matches(topic):
                return target
        if self._default is None:
            raise NoRoute(topic, [str(pattern) for pattern, _ in self._routes])
        return self._default

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        """Dispatch outside a relay, which asks `route` instead."""
        target = self.route(message.meta.topic)
        returned = cast("object", await target.dispatch(message))
        if returned is not None:
            raise InvalidDispatcherReturn(name_of(target), returned)

    async def __aenter__(self) -> Self:
        await self._targets.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._targets.close()

    def __repr__(self) -> str:
        routes = ", ".join(f"{str(pattern)!r}: {name_of(target)}" for pattern, target in self._routes)
        default = "" if self._default is None else f", default={name_of(self._default)}"
        return f"Router({{{routes}}}{default})"
