"""What an error of nats-py means for a message: whose fault it is, and whether trying again can help."""

from __future__ import annotations

import json
from typing import Final

from nats import errors
from nats.js.errors import APIError, NoStreamResponseError

from outbox_core.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DispatchTimeout,
    OutboxError,
    PermanentError,
    ProviderError,
)

_REFUSALS: Final = (
    "authorization",
    "authentication",
    "credentials",
    "tls required",
    "certificate",
    "revoked",
)
_TOO_LARGE: Final = 10054
_WRONG_STREAM: Final = 10060
_SERVER_AT_FAULT: Final = frozenset((10008, 10023, 10028, 10047))
"""JetStream's codes for: temporarily unavailable, and insufficient resources, memory and storage."""


def classify(error: Exception, subject: str, stream: str | None) -> OutboxError:
    """The outcome of a publish that raised."""
    if isinstance(error, NoStreamResponseError):
        return ProviderError(
            f"no JetStream stream stores the subject {subject!r}; create one, or add the subject to one"
        )
    if isinstance(error, APIError):
        return _api_error(error, subject, stream)
    if isinstance(error, errors.MaxPayloadError):
        return PermanentError(f"the message to {subject!r} is larger than the server's max_payload")
    if isinstance(error, errors.BadSubjectError | errors.BadHeaderError):
        return PermanentError(f"the client refused the message to {subject!r}: {error}")
    if isinstance(error, errors.TimeoutError):
        return DispatchTimeout(f"no acknowledgement for the subject {subject!r} in time")
    if isinstance(error, json.JSONDecodeError | TypeError | KeyError):
        return not_an_ack(subject)
    return unavailable(error)


def unavailable(error: BaseException | None, where: str = "the NATS server") -> BrokerUnavailable:
    """Why there is no working connection; `BrokerRefused` when waiting will not help."""
    text = "the connection was closed" if error is None else _text(error)
    if isinstance(error, errors.AuthorizationError) or any(word in text.lower() for word in _REFUSALS):
        return BrokerRefused(f"{where} refused the login: {text}")
    if isinstance(error, errors.SecureConnWantedError | errors.SecureConnRequiredError):
        return BrokerRefused(f"{where} does not offer what was asked for: {text}")
    return BrokerUnavailable(f"{where} cannot be reached: {text}")


def not_an_ack(subject: str) -> ProviderError:
    """Somebody answered, and it was not a stream: nothing says that the message is stored."""
    return ProviderError(
        f"the answer to a publish to {subject!r} is not a stream's acknowledgement;"
        " does a service answer requests on this subject?"
    )


def _api_error(error: APIError, subject: str, stream: str | None) -> ProviderError:
    shown = f"JetStream refused the message to {subject!r} with code {error.err_code}: {error.description}"
    if error.err_code == _TOO_LARGE:
        return PermanentError(shown)
    if error.err_code == _WRONG_STREAM:
        return ProviderError(f"{shown}; the subject does not belong to the stream {stream!r}")
    if error.err_code in _SERVER_AT_FAULT:
        return BrokerUnavailable(shown)
    return ProviderError(shown)


def _text(error: BaseException) -> str:
    # An operating system's error says more by its own text than by the words of whoever wraps it.
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return str(error).removeprefix("nats: ").strip("'\" ") or type(error).__name__
