"""Following routers to the dispatcher that takes the messages of a topic."""

from __future__ import annotations

import inspect
from typing import Final

from outbox_core.dispatcher import Dispatcher, Routing, name_of
from outbox_core.errors import ConfigError

MOST_ROUTERS: Final = 10
"""Routers one behind the other. Nobody has that many on purpose, and some answer with a new one each time."""
_CURE: Final = (
    "one of them has to answer with a dispatcher that is no router, or with itself to take the message"
)


def leaf_of(root: Dispatcher, topic: str) -> Dispatcher:
    """The dispatcher that takes the messages of a topic: the first that is no router, or answers with itself.

    Raises what a router's own ``route`` raises, and `ConfigError` when one answers with something else than a
    dispatcher, or the routers lead in a circle or on and on.
    """
    dispatcher: object = root
    way: list[object] = [root]
    while isinstance(dispatcher, Routing):
        following: object = dispatcher.route(topic)
        if following is dispatcher:
            break
        way.append(following)
        if any(following is router for router in way[:-1]):
            raise ConfigError(
                f"the routers lead in a circle with the topic {topic!r}: {_shown(way)}; {_CURE}"
            )
        if len(way) > MOST_ROUTERS and isinstance(following, Routing):
            raise ConfigError(
                f"the topic {topic!r} leads through more than {MOST_ROUTERS} routers: {_shown(way)}; {_CURE}"
            )
        dispatcher = following
    return _as_dispatcher(dispatcher)


def _as_dispatcher(value: object) -> Dispatcher:
    if isinstance(value, Dispatcher):
        return value
    why = f"route() returned a {type(value).__name__}, which is not a dispatcher"
    if inspect.iscoroutine(value):
        value.close()  # nobody awaits it
        why += "; it must be a plain function, not `async def`"
    raise ConfigError(why)


def _shown(way: list[object]) -> str:
    return ", ".join(map(name_of, way))
