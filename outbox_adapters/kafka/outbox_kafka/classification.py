"""Classify errors of aiokafka: who is at fault, and whether a retry can help."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from aiokafka import errors
from aiokafka.structs import RecordMetadata

from outbox_core.adapter.pipeline import Undecided
from outbox_core.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DispatchTimeout,
    OutboxError,
    PermanentError,
    ProviderError,
)

_TOO_LARGE: Final = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.RecordTooLargeError,
)
_BROKEN_PRODUCER: Final = (
    errors.DuplicateSequenceNumber,
    errors.InvalidProducerEpoch,
    errors.InvalidProducerIdMapping,
    errors.OutOfOrderSequenceNumber,
    errors.ProducerFenced,
    errors.UnknownProducerId,
)
_REFUSED: Final = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.ClusterAuthorizationFailedError,
    errors.IllegalSaslStateError,
    errors.SaslAuthenticationFailed,
    errors.SecurityDisabled,
    errors.UnsupportedSaslMechanismError,
)
_ELECTION: Final = (
    errors.LeaderNotAvailableError,
    errors.NotEnoughReplicasAfterAppendError,
    errors.NotEnoughReplicasError,
    errors.NotLeaderForPartitionError,
    errors.ReplicaNotAvailableError,
)


class NotKafka(Exception):
    """Raised when a server accepts the connection and closes it without an answer of a Kafka broker."""


def classify_sending(error: Exception, topic: str) -> OutboxError:
    """The outcome of a message that the client refused: nothing was sent."""
    if isinstance(error, _TOO_LARGE):
        return PermanentError(f"the message to the topic {topic!r} is larger than max_request_size")
    return _common(error, topic)


def delivery(future: asyncio.Future[object], topic: str) -> OutboxError | Undecided | None:
    """The outcome of a message that the client accepted, from its finished future."""
    error = future.exception()
    if error is not None:
        outcome = _undelivered(error, topic)
        outcome.__cause__ = error
        return outcome
    if not isinstance(future.result(), RecordMetadata):
        return ProviderError(f"the broker did not say where in the topic {topic!r} it stored the message")
    return None


def _undelivered(error: BaseException, topic: str) -> OutboxError | Undecided:
    """The outcome of a message that the broker refused. Its error is about a whole batch of messages."""
    if isinstance(error, _TOO_LARGE):
        return Undecided(
            PermanentError(f"the message is larger than the topic {topic!r} takes (max.message.bytes)")
        )
    if isinstance(error, _BROKEN_PRODUCER):
        return Undecided(ProviderError(f"the producer was refused and replaced: {_text(error)}"))
    outcome = _common(error, topic)
    return outcome if isinstance(outcome, BrokerUnavailable | DispatchTimeout) else Undecided(outcome)


def unknown_topic(topic: str) -> ProviderError:
    return ProviderError(
        f"the cluster has no topic {topic!r}; create it, or let the broker create topics by itself"
    )


def unavailable(error: BaseException | None, where: str = "the Kafka cluster") -> BrokerUnavailable:
    """The error for a connection that failed; `BrokerRefused` when waiting will not help."""
    if isinstance(error, _REFUSED):
        return BrokerRefused(f"{where} refused the login: {_text(error)}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return BrokerRefused(f"the certificate of {where} is not trusted: {_text(error)}")
    if isinstance(error, NotKafka):
        return BrokerUnavailable(
            f"{where} cannot be used: the server there closes the connection; it wants TLS or a login,"
            " or it is something other than a Kafka broker"
        )
    return BrokerUnavailable(f"{where} cannot be reached: {_text(error)}")


def _common(error: BaseException, topic: str) -> ProviderError | DispatchTimeout:
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return unknown_topic(topic)
    if isinstance(error, errors.InvalidTopicError):
        return PermanentError(f"the cluster does not take {topic!r} as a topic's name")
    if isinstance(error, errors.TopicAuthorizationFailedError):
        return ProviderError(f"this user may not write to the topic {topic!r}")
    if isinstance(error, _ELECTION):
        return ProviderError(
            f"no leader of the topic {topic!r} with enough replicas takes messages: {_text(error)}"
        )
    if isinstance(error, errors.KafkaTimeoutError):
        return DispatchTimeout(
            f"the message to the topic {topic!r} found no place in the client's buffer in time"
        )
    if isinstance(error, (errors.ProducerClosed, *_REFUSED)) or getattr(error, "retriable", False):
        return unavailable(error)
    if isinstance(error, errors.KafkaError):
        return ProviderError(f"Kafka refused the message to the topic {topic!r}: {_text(error)}")
    return unavailable(error)


def _text(error: BaseException | None) -> str:
    if error is None:
        return "the connection was closed"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    text, name = str(error), type(error).__name__
    return text if text.startswith(name) else f"{name} {text}".rstrip()
