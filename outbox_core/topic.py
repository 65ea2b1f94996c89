"""Topics: the rule every one obeys, the four-part shape many follow, and patterns that select them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from outbox_core.errors import InvalidTopic, InvalidTopicPattern

MAX_TOPIC_CHARACTERS: Final = 127

_TOPIC: Final = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*")
_SEGMENT: Final = re.compile(r"[a-z0-9-]+")
_OTHER_CHARACTER: Final = re.compile(r"[^a-z0-9.-]")
_VERSION: Final = re.compile(r"v([1-9][0-9]{0,8})")
_CHARACTERS: Final = "only lower-case letters a-z, digits and hyphens may stand in segments joined by dots"


def check_topic(value: object) -> str:
    """The value, if it is a topic: segments of ``[a-z0-9-]`` joined by dots, fewer than 128 characters in all.

    Every broker takes such a name as it is. Anything else raises `InvalidTopic`.
    """
    if isinstance(value, str) and len(value) <= MAX_TOPIC_CHARACTERS and _TOPIC.fullmatch(value) is not None:
        return value
    raise InvalidTopic(value, _broken_rule(value))


def _broken_rule(value: object) -> str:
    if not isinstance(value, str):
        hint = "; pass str(topic)" if isinstance(value, Topic) else ""
        return f"expected a str, got {type(value).__name__}{hint}"
    if not value:
        return "it is empty"
    if len(value) > MAX_TOPIC_CHARACTERS:
        return f"it has {len(value)} characters and at most {MAX_TOPIC_CHARACTERS} are allowed"
    other = _OTHER_CHARACTER.search(value)
    if other is None:
        return "it has an empty segment: it may not begin or end with a dot, nor have two dots in a row"
    lowered = value.lower().replace("_", "-")
    hint = f" (write {lowered!r})" if _TOPIC.fullmatch(lowered) is not None else ""
    return f"{other[0]!r} at position {other.start()} is not allowed: {_CHARACTERS}{hint}"


@dataclass(frozen=True, slots=True, order=True)
class Topic:
    """The shape ``<module>.<aggregate>.<event>.vN``; a breaking change of the payload raises N.

    ``str(topic)`` is the text a `Message` takes.
    """

    module: str
    aggregate: str
    event: str
    version: int

    def __post_init__(self) -> None:
        for part in ("module", "aggregate", "event"):
            segment: object = getattr(self, part)
            if not isinstance(segment, str) or _SEGMENT.fullmatch(segment) is None:
                raise InvalidTopic(
                    str(self), f"the {part} must be one segment of lower-case letters, digits and hyphens"
                )
        version: object = self.version
        if (
            not isinstance(version, int)
            or isinstance(version, bool)
            or _VERSION.fullmatch(f"v{version}") is None
        ):
            raise InvalidTopic(str(self), "the version must be a whole number from 1")
        check_topic(str(self))

    @classmethod
    def parse(cls, value: str | Topic) -> Topic:
        """Read ``"orders.order.placed.v1"``; a `Topic` comes back as it is."""
        if isinstance(value, Topic):
            return value
        parts = check_topic(value).split(".")
        if len(parts) != 4:
            raise InvalidTopic(
                value, f"expected the four parts <module>.<aggregate>.<event>.vN, got {len(parts)}"
            )
        version = _VERSION.fullmatch(parts[3])
        if version is None:
            raise InvalidTopic(
                value,
                f"the last of the four parts must be a version such as v1, without leading zeros, got {parts[3]!r}",
            )
        return cls(parts[0], parts[1], parts[2], int(version[1]))

    def __str__(self) -> str:
        return f"{self.module}.{self.aggregate}.{self.event}.v{self.version}"


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics selected by their segments: ``*`` stands for one, ``**`` for one or more, at any place in the pattern.

    A wildcard is a whole segment: ``orders.*.placed.v1`` and ``orders.**`` are patterns, ``ord*`` is not.
    """

    segments: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_pattern(str(self), self.segments)

    @classmethod
    def parse(cls, value: str | TopicPattern) -> TopicPattern:
        """Read a pattern; a plain topic is a pattern that matches itself, and a `TopicPattern` comes back as it is."""
        if isinstance(value, TopicPattern):
            return value
        text: object = value
        if not isinstance(text, str):
            raise InvalidTopicPattern(text, f"expected a str, got {type(text).__name__}")
        return cls(tuple(text.split(".")))

    @property
    def is_exact(self) -> bool:
        """Whether the pattern has no wildcard and so matches a single topic."""
        return "*" not in self.segments and "**" not in self.segments

    def matches(self, topic: str | Topic) -> bool:
        """Whether the pattern selects the topic. The time is bounded by the product of their numbers of segments."""
        return _match(self.segments, str(topic).split("."))

    def __str__(self) -> str:
        return ".".join(self.segments)


def _check_pattern(text: str, segments: tuple[str, ...]) -> None:
    if not text:
        raise InvalidTopicPattern(text, "it is empty; '**' matches every topic")
    if len(text) > MAX_TOPIC_CHARACTERS:
        raise InvalidTopicPattern(
            text,
            f"it has {len(text)} characters; no topic has more than {MAX_TOPIC_CHARACTERS}, so it matches none",
        )
    for number, segment in enumerate(segments, start=1):
        if segment not in ("*", "**") and _SEGMENT.fullmatch(segment) is None:
            raise InvalidTopicPattern(text, f"segment {number}, {segment!r}, {_broken_segment_rule(segment)}")


def _broken_segment_rule(segment: str) -> str:
    if not segment:
        return "is empty: a pattern may not begin or end with a dot, nor have two dots in a row"
    if segment in (">", "#"):
        return "is another system's wildcard; here '**' stands for one or more segments"
    if "*" in segment:
        return "mixes a wildcard with other characters; '*' (one segment) and '**' (one or more) stand alone"
    return f"has other characters: {_CHARACTERS}, besides the wildcards '*' and '**'"


def _match(pattern: tuple[str, ...], topic: list[str]) -> bool:
    """Match greedily, going back only to the last ``**``: never exponential, whatever the pattern."""
    at = seen = 0
    resume_at = resume_seen = -1
    while seen < len(topic):
        wanted = pattern[at] if at < len(pattern) else None
        if wanted == "**":
            at += 1
            seen += 1
            resume_at, resume_seen = at, seen
        elif wanted is not None and (wanted == "*" or wanted == topic[seen]):
            at += 1
            seen += 1
        elif resume_at >= 0:
            resume_seen += 1
            at, seen = resume_at, resume_seen
        else:
            return False
    return at == len(pattern)
