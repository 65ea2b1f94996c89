"""Classify errors of aio-pika and aiormq: who is at fault, and whether a retry can help."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final

from aiormq.exceptions import (
    AMQPChannelError,
    AMQPConnectionError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    ConnectionResourceError,
    DeliveryError,
    IncompatibleProtocolError,
    InvalidFrameError,
    ProbableAuthenticationError,
    PublishError,
)

from outbox_core.adapter.pipeline import Undecided
from outbox_core.errors import (
    BrokerExhausted,
    BrokerRefused,
    BrokerUnavailable,
    DispatchTimeout,
    OutboxError,
    PermanentError,
    ProviderError,
)

if TYPE_CHECKING:
    from outbox_amqp.rendering import AmqpDestination

# aiormq's error for a broker that closes the connection when the client names the virtual host.
_REFUSAL: Final = re.compile(r"Connection\.OpenOk\b.* got .*Connection\.Close\b")

_CLOSED_BY_PEER: Final = re.compile("unexpectedly closed")


def classify(error: Exception, destination: AmqpDestination, *, connected: bool) -> OutboxError | Undecided:
    """The outcome of a publish that raised. A broker that refuses one message closes the channel for all of them."""
    if isinstance(error, PublishError):
        return ProviderError(f"no queue is bound to take the message: {destination}")
    if isinstance(error, DeliveryError):
        return ProviderError(f"the broker did not accept the message (nack): {destination}")
    if isinstance(error, ChannelNotFoundEntity):
        return Undecided(ProviderError(f"there is no such exchange: {destination} ({_text(error)})"))
    if isinstance(error, ChannelAccessRefused):
        return Undecided(ProviderError(f"this user may not publish there: {destination} ({_text(error)})"))
    if isinstance(error, ChannelPreconditionFailed):
        return Undecided(
            PermanentError(f"the broker refused the message for good: {destination} ({_text(error)})")
        )
    if isinstance(error, AMQPChannelError | ChannelInvalidStateError) and connected:
        return Undecided(ProviderError(f"the broker closed the channel: {destination} ({_text(error)})"))
    if isinstance(error, TimeoutError):
        return DispatchTimeout(f"no confirmation in time: {destination}")
    return unavailable(error)


def unavailable(error: BaseException | None, where: str = "the AMQP broker") -> BrokerUnavailable:
    """The error for a connection that failed; `BrokerRefused` when waiting will not help."""
    if isinstance(error, AuthenticationError | ProbableAuthenticationError):
        return BrokerRefused(f"{where} refused the login: {_text(error)}")
    if isinstance(error, ConnectionNotAllowed) or (
        isinstance(error, InvalidFrameError) and _REFUSAL.search(str(error)) is not None
    ):
        return BrokerRefused(f"{where}: there is no such virtual host, or this user may not use it")
    if isinstance(error, ssl.SSLCertVerificationError) or isinstance(
        getattr(error, "__cause__", None), ssl.SSLCertVerificationError
    ):
        return BrokerRefused(f"the certificate of {where} is not trusted: {_text(error)}")
    if isinstance(error, IncompatibleProtocolError | InvalidFrameError):
        return BrokerUnavailable(
            f"{where} cannot be used: something other than an AMQP 0-9-1 broker answers there"
        )
    if isinstance(error, AMQPConnectionError) and _CLOSED_BY_PEER.search(str(error)) is not None:
        return BrokerUnavailable(
            f"{where} closed the connection: it is shutting down, or something other than an AMQP 0-9-1 broker answers"
            " there"
        )
    if isinstance(error, ConnectionResourceError):
        return BrokerExhausted(f"{where} is out of resources: {_text(error)}")
    if error is None or isinstance(error, AMQPConnectionError | OSError):
        return BrokerUnavailable(f"{where} cannot be reached: {_text(error)}")
    return BrokerUnavailable(f"the connection to {where} failed: {type(error).__name__}: {_text(error)}")


def _text(error: BaseException | None) -> str:
    if error is None:
        return "the connection was closed"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    # aiormq's own text is a template filled with these.
    return " ".join(str(part) for part in error.args if isinstance(part, str | int)) or type(error).__name__
