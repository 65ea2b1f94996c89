"""The destination of a topic on a broker: a mapping or a function from topics to destinations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar, cast

from outbox_core.dispatcher import takes_one
from outbox_core.errors import ConfigError, OutboxError, PermanentError, ProviderError
from outbox_core.topic import TopicPattern

D = TypeVar("D")

_REMEMBERED_TOPICS: Final = 1024

DestinationMap: TypeAlias = Mapping[str, D] | Callable[[str], D]
"""Topic patterns to destinations, of which the first match counts; or a function from a topic to its destination."""


class InvalidDestination(ValueError):
    """Raised when a destination breaks a rule, which is the error's text.

    The caller decides who is at fault: a value from the configuration becomes a `ConfigError`, one that a function
    returned for a message becomes the `PermanentError` of that message.
    """


class Destinations(Generic[D]):
    """Finds and checks the destination of a topic, so that an invalid one fails only its own messages.

    Without ``destinations`` every topic is its own destination, made by ``of_topic``. With a mapping, a topic that no
    pattern matches goes to ``default``, and is refused for good when there is none. ``check`` returns a destination
    as the client takes it, or raises `InvalidDestination`.
    """

    def __init__(
        self,
        destinations: DestinationMap[object] | None,
        *,
        default: object,
        of_topic: Callable[[str], object],
        check: Callable[[object], D],
    ) -> None:
        self._check = check
        self._function = of_topic
        self._asks_every_time = False
        self._remembered: dict[str, D] = {}
        self._patterns: list[tuple[TopicPattern, D]] | None = None
        self._default = None if default is None else self._configured("default_destination", default)
        given: object = destinations
        if isinstance(given, Mapping):
            mapping = cast("Mapping[str, object]", given)
            self._patterns = [
                (TopicPattern.parse(pattern), self._configured(f"the destination of {pattern!r}", value))
                for pattern, value in mapping.items()
            ]
            if not mapping and default is None:
                raise ConfigError(
                    "destinations is empty and there is no default_destination, so no message could be sent;"
                    " leave it out to send each topic to the destination of its own name"
                )
        elif inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(type(given).__call__):
            raise ConfigError("destinations must be a plain function of the topic, got an asynchronous one")
        elif callable(given):
            takes_one("the function given as destinations", given, "the topic")
            self._function = given
            self._asks_every_time = True
        elif given is not None:
            raise ConfigError(
                "destinations must be a mapping of topic patterns or a function of the topic,"
                f" got {type(given).__name__}"
            )
        if default is not None and self._patterns is None:
            raise ConfigError(
                "default_destination belongs to a mapping: it is for topics that no pattern matches"
            )

    def of(self, topic: str) -> D:
        """The destination of a topic. Raises `PermanentError` when there is none or it is not valid.

        Each topic is resolved once; only a function of the application is called every time.
        """
        found = self._remembered.get(topic)
        if found is not None:
            return found
        if self._patterns is None:
            found = self._called(topic)
            if self._asks_every_time:
                return found
        else:
            found = self._mapped(topic, self._patterns)
        if len(self._remembered) >= _REMEMBERED_TOPICS:
            self._remembered.clear()
        self._remembered[topic] = found
        return found

    def _mapped(self, topic: str, patterns: list[tuple[TopicPattern, D]]) -> D:
        for pattern, destination in patterns:
            if pattern.matches(topic):
                return destination
        if self._default is None:
            known = ", ".join(repr(str(pattern)) for pattern, _ in patterns) or "none"
            raise PermanentError(
                f"the topic {topic!r} has no destination: none of the patterns matches it ({known})"
                " and there is no default_destination"
            )
        return self._default

    def _called(self, topic: str) -> D:
        try:
            destination: object = self._function(topic)
        except OutboxError:
            raise
        except Exception as error:  # any error of the application's function: it fails this message only
            raise ProviderError(
                f"the destination function raised {type(error).__name__} for the topic {topic!r}: {error}"
            ) from error
        try:
            return self._check(destination)
        except InvalidDestination as error:
            raise PermanentError(
                f"the topic {topic!r} has an invalid destination {_shown(destination)}: {error}"
            ) from None

    def _configured(self, what: str, destination: object) -> D:
        try:
            return self._check(destination)
        except InvalidDestination as error:
            raise ConfigError(f"{what} is {_shown(destination)}: {error}") from None


def _shown(destination: object) -> str:
    text = repr(destination)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
