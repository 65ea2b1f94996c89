"""What a test expects of messages, and what it is told when that is not so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypedDict, Unpack
from uuid import UUID

from outbox_core.encoding import encode_json
from outbox_core.errors import ConfigError, EncodingError
from outbox_core.testing.matching import Matching, fits
from outbox_core.topic import TopicPattern

if TYPE_CHECKING:
    from outbox_core.testing.messages import SeenMessage

_SHOWN_MESSAGES: Final = 20
_SHOWN_CHARACTERS: Final = 200


class Conditions(TypedDict, total=False):
    """What can be asked of a message besides its topic; what is left out may be anything."""

    payload: object
    """Equal, where a value counts as the JSON it is encoded to; `matching` asks for less."""
    key: str | Matching | None
    headers: object
    """Those it must have among its own."""
    tenant_id: UUID | Matching
    event_id: UUID | Matching


def select(
    messages: Sequence[SeenMessage], topic: str | TopicPattern, **conditions: Unpack[Conditions]
) -> list[SeenMessage]:
    """The messages of a topic pattern that meet every condition, in their order."""
    pattern = TopicPattern.parse(topic)
    return [message for message in messages if pattern.matches(message.topic) and _meets(message, conditions)]


def require(
    messages: Sequence[SeenMessage],
    deed: str,
    topic: str | TopicPattern,
    times: int | None,
    **conditions: Unpack[Conditions],
) -> SeenMessage:
    """The first of the messages that `select` finds; an AssertionError unless there are exactly ``times`` of them, or
    any at all when it is None."""
    if times is not None and times < 1:
        raise ConfigError(f"times must be at least 1, got {times}; assert_not_{deed} is for none at all")
    found = select(messages, topic, **conditions)
    if found and times in (None, len(found)):
        return found[0]
    wanted = "at least 1 message" if times is None else f"{times} message{'s' * (times > 1)}"
    raise AssertionError(
        f"expected {wanted} {deed} with {_shown(topic, conditions)}, found {len(found)}\n{_listed(messages, deed)}"
    )


def refuse(
    messages: Sequence[SeenMessage], deed: str, topic: str | TopicPattern, **conditions: Unpack[Conditions]
) -> None:
    """An AssertionError when `select` finds a message."""
    found = select(messages, topic, **conditions)
    if found:
        raise AssertionError(
            f"expected no message {deed} with {_shown(topic, conditions)}, found {len(found)}\n{_listed(found, deed)}"
        )


def _meets(message: SeenMessage, conditions: Conditions) -> bool:
    return all(
        _is_payload(wanted, message.payload) if name == "payload" else fits(wanted, getattr(message, name))
        for name, wanted in conditions.items()
    )


def _is_payload(expected: object, payload: object) -> bool:
    """Equal as it stands or as JSON: a test may write the ``UUID`` or the ``Decimal`` that the application wrote."""
    if expected == payload:
        return True
    if isinstance(expected, Matching):
        return False
    try:
        return bool(json.loads(encode_json(expected)) == payload)
    except EncodingError:
        return False


def _shown(topic: str | TopicPattern, conditions: Conditions) -> str:
    return ", ".join(
        [f"topic={str(topic)!r}", *(f"{name}={wanted!r}" for name, wanted in conditions.items())]
    )


def _listed(messages: Sequence[SeenMessage], deed: str) -> str:
    """All that was seen, a line for each message, cut to what can still be read."""
    if not messages:
        return f"nothing was {deed}"
    lines = [f"{deed}:", *(f"  {_line(message)}" for message in messages[:_SHOWN_MESSAGES])]
    if len(messages) > _SHOWN_MESSAGES:
        lines.append(f"  … and {len(messages) - _SHOWN_MESSAGES} more")
    return "\n".join(lines)


def _line(message: SeenMessage) -> str:
    payload = repr(message.payload)
    if len(payload) > _SHOWN_CHARACTERS:
        payload = f"{payload[:_SHOWN_CHARACTERS]}…"
    key = "" if message.key is None else f" key={message.key!r}"
    headers = f" headers={dict(message.headers)!r}" if message.headers else ""
    error = "" if message.last_error is None else f" last_error={message.last_error!r}"
    return f"{message.sequence}. {message.topic} {payload}{key}{headers}{error}"
