"""Classify errors of nats-py and answers of JetStream: who is at fault, and whether a retry can help."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nats import errors
from nats.js.api import Header

from outbox_core.errors import (
    BrokerExhausted,
    BrokerRefused,
    BrokerUnavailable,
    OutboxError,
    PermanentError,
    ProviderError,
    RetryAfter,
)

if TYPE_CHECKING:
    import asyncio

    from nats.aio.msg import Msg

_REFUSALS: Final = (
    "authorization",
    "authentication",
    "credentials",
    "tls required",
    "certificate",
    "revoked",
)
_NO_RESPONDERS: Final = "503"
_TOO_MANY_REQUESTS: Final = 429
_PAUSE_SECONDS: Final = 1.0
_TOO_LARGE: Final = 10054
_WRONG_STREAM: Final = 10060
_SERVER_AT_FAULT: Final = frozenset((10008, 10023, 10028, 10047))
"""JetStream's codes for: temporarily unavailable, and insufficient resources, memory and storage."""


class Acknowledged(NamedTuple):
    """A stream has stored the message; with ``duplicate`` it had stored it before."""

    duplicate: bool


def classify(error: Exception, subject: str) -> OutboxError:
    """The outcome of a message that the client refused."""
    if isinstance(error, errors.MaxPayloadError):
        return PermanentError(f"the message to {subject!r} is larger than the server's max_payload")
    if isinstance(error, errors.BadSubjectError | errors.BadHeaderError):
        return PermanentError(f"the client refused the message to {subject!r}: {error}")
    return unavailable(error)


def read_answer(answer: asyncio.Future[Msg], subject: str, stream: str | None) -> OutboxError | Acknowledged:
    """The outcome of a message that the client accepted, from the answer to it."""
    error = answer.exception()
    if error is not None:
        return error if isinstance(error, OutboxError) else unavailable(error)
    msg = answer.result()
    if msg.headers and msg.headers.get(Header.STATUS) == _NO_RESPONDERS:
        return ProviderError(
            f"no JetStream stream stores the subject {subject!r}; create one, or add the subject to one"
        )
    try:
        content: Any = json.loads(msg.data)
        if "error" in content:
            details = content["error"]
            return _refusal(details["err_code"], details["code"], details["description"], subject, stream)
        stored = bool(content["stream"] and content["seq"])
    except (ValueError, TypeError, KeyError):  # not JSON, or without the members of an answer
        return not_an_ack(subject)
    return Acknowledged(content.get("duplicate") is True) if stored else not_an_ack(subject)


def unavailable(error: BaseException | None, where: str = "the NATS server") -> BrokerUnavailable:
    """The error for a connection that failed; `BrokerRefused` when waiting will not help."""
    text = "the connection was closed" if error is None else _text(error)
    if isinstance(error, errors.AuthorizationError) or any(word in text.lower() for word in _REFUSALS):
        return BrokerRefused(f"{where} refused the login: {text}")
    if isinstance(error, errors.SecureConnWantedError | errors.SecureConnRequiredError):
        return BrokerRefused(f"{where} does not offer what was asked for: {text}")
    return BrokerUnavailable(f"{where} cannot be reached: {text}")


def not_an_ack(subject: str) -> ProviderError:
    """The outcome of a message that something other than a stream answered: it may not be stored."""
    return ProviderError(
        f"the answer to a publish to {subject!r} is not a stream's acknowledgement;"
        " does a service answer requests on this subject?"
    )


def _refusal(code: int, status: int, text: str, subject: str, stream: str | None) -> ProviderError:
    shown = f"JetStream refused the message to {subject!r} with code {code}: {text}"
    if code == _TOO_LARGE:
        return PermanentError(shown)
    if code == _WRONG_STREAM:
        return ProviderError(f"{shown}; the subject does not belong to the stream {stream!r}")
    if status == _TOO_MANY_REQUESTS:
        return RetryAfter(_PAUSE_SECONDS, shown)
    if code in _SERVER_AT_FAULT:
        return BrokerExhausted(shown)
    return ProviderError(shown)


def _text(error: BaseException) -> str:
    # The text of an operating system's error says more than nats-py's text around it.
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return str(error).removeprefix("nats: ").strip("'\" ") or type(error).__name__
