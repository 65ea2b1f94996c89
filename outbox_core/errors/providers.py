"""Dispatchers and the brokers behind them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from outbox_core.errors.root import OutboxError


class ProviderError(OutboxError):
    """Raised when a broker, or the client library that speaks to it, fails."""

    code: ClassVar[str] = "PROVIDER.ERROR"


class BrokerUnavailable(ProviderError):
    """Raised by a dispatcher when its broker, not the message, is at fault: the attempt is not charged."""

    code: ClassVar[str] = "PROVIDER.UNAVAILABLE"


class BrokerRefused(BrokerUnavailable):
    """Raised by a dispatcher whose broker refuses its login, its certificate or its protocol: waiting does not help.

    Messages wait all the same, and are not charged for it, until somebody mends the credentials.
    """

    code: ClassVar[str] = "PROVIDER.REFUSED"


class BrokerExhausted(BrokerUnavailable):
    """Raised by a dispatcher whose broker has answered that it can take nothing just now, such as one without storage.

    It may answer a probe all the same, which says nothing then: no message is suspected of driving it away before
    another one is acknowledged, however long that takes.
    """

    code: ClassVar[str] = "PROVIDER.EXHAUSTED"


class InvalidDispatcherReturn(ProviderError):
    """Raised when a dispatcher returns something instead of None, or from ``dispatch_many`` anything but an outcome for
    each message: a false success must not pass for a true one.

    ``from_many`` says what ``dispatch_many`` returned, and what to return instead.
    """

    code: ClassVar[str] = "PROVIDER.INVALID_RETURN"

    def __init__(self, dispatcher: str, returned: object, *, from_many: str | None = None) -> None:
        super().__init__(
            f"the dispatcher {dispatcher} returned a {type(returned).__name__}; it must return None once the"
            " destination has acknowledged the message, and raise otherwise"
            if from_many is None
            else f"dispatch_many of {dispatcher} returned {from_many}"
        )


class PermanentError(ProviderError):
    """Raised by a dispatcher when no retry can help: the message is dead at once."""

    code: ClassVar[str] = "PROVIDER.PERMANENT"


class AllPermanent(ExceptionGroup[Exception], PermanentError):
    """Raised when several handlers or targets failed with one message, and no retry can help any of them.

    A group like any other: ``exceptions`` has them all, and ``except*`` tells them apart.
    """

    code: ClassVar[str] = "PROVIDER.ALL_PERMANENT"


class NoRoute(ProviderError):
    """Raised by a `Router` for a topic that no route matches, when it has no default.

    The message is retried: the mistake is in the configuration, and the next deployment may mend it. ``topic`` is the
    message's.
    """

    code: ClassVar[str] = "PROVIDER.NO_ROUTE"

    def __init__(self, topic: str, patterns: Sequence[str]) -> None:
        known = ", ".join(map(repr, patterns[:20])) or "none"
        super().__init__(
            f"no route matches the topic {topic!r}; the routes are {known}. Add one for it, or a default"
        )
        self.topic = topic


class RetryAfter(ProviderError):
    """Raised by a dispatcher to choose when a message is tried again, 24 hours later at most; it counts an attempt."""

    code: ClassVar[str] = "PROVIDER.RETRY_AFTER"

    def __init__(
        self, delay: timedelta | float, reason: str = "the destination asked for a later retry"
    ) -> None:
        super().__init__(reason)
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)


class NotAnOutboxMessage(ProviderError, ValueError):
    """Raised when a record taken from a broker was not sent by this library, or lost its headers on the way."""

    code: ClassVar[str] = "PROVIDER.NOT_AN_OUTBOX_MESSAGE"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the record does not have the headers of an outbox message: {reason};"
            " it may come from another producer on the same destination"
        )
        self.reason = reason


class UnsupportedRecord(ProviderError, TypeError):
    """Raised when what is to be read back is not a record as the adapter's own client gives it to a consumer."""

    code: ClassVar[str] = "PROVIDER.UNSUPPORTED_RECORD"

    def __init__(self, expected: str, record: object, why: str = "") -> None:
        kind = type(record)
        found = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        super().__init__(f"expected {expected}, got {found}{f': {why}' if why else ''}")
