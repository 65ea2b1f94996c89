"""What is told of messages: one vocabulary of typed events, and the contract of whoever listens."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from outbox_core.message import Meta
    from outbox_core.status import TableStatus
    from outbox_core.table import TableName

_logger: Final = logging.getLogger(__name__)
_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one table."""

    table: TableName


@dataclass(frozen=True, slots=True)
class Claimed(Event):
    """Rows were leased. ``seconds`` is how long the statement took."""

    rows: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Dispatched(Event):
    """The broker acknowledged these messages. ``seconds`` has the duration of each dispatch, in the same order."""

    messages: Sequence[Meta]
    seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class Published(Event):
    """The acknowledgement of these messages is on record."""

    messages: Sequence[Meta]


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """A dispatch failed and the message was put off. ``charged`` is false when the attempt was given back because the
    broker, not the message, was at fault."""

    message: Meta
    error: str
    retry_in: float
    charged: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Dead(Event):
    """A message was given up, once: it stays in the table until somebody replays or discards it. ``seconds`` is how
    long its last dispatch took, 0 when it had none."""

    message: Meta
    error: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Released(Event):
    """Leased rows were given back undispatched, their attempts refunded."""

    rows: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """A write came too late: another owner has the row, and nothing was changed."""

    message: Meta
    write: str


@dataclass(frozen=True, slots=True)
class LeaderGained(Event):
    """This relay leads the table from now on, in this term."""

    term: int


@dataclass(frozen=True, slots=True)
class LeaderLost(Event):
    """This relay stopped leading the table."""

    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class BreakerOpened(Event):
    """A destination is unreachable; its messages wait. ``retry_in`` is the time until it is tried again."""

    destination: str
    error: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class BreakerClosed(Event):
    """A destination acknowledged a message again after ``seconds`` of outage."""

    destination: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Reconnecting(Event):
    """The database did not answer; the relay tries again in ``retry_in`` seconds."""

    error: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class PoolerDetected(Event):
    """A transaction pooler is in the way: leadership rests on the leader row's heartbeat, wake-ups on polling."""


@dataclass(frozen=True, slots=True)
class SessionEnded(Event):
    """A relay session that was stuck sending rows to a frozen process was ended, so that its rows are free again."""

    pid: int


@dataclass(frozen=True, slots=True)
class Cleaned(Event):
    """A cleaner deleted messages that had been published, or dead, for long enough. A long pass tells it in parts:
    the figures are those since the last time. ``seconds`` is how long its statements took, pauses left out."""

    published: int
    dead: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured(Event):
    """The table was looked at, as a relay does from time to time. ``status`` is what was found."""

    status: TableStatus


@dataclass(frozen=True, slots=True)
class Replayed(Event):
    """An operator had messages delivered once more. ``audit_id`` is where who, when and why is on record."""

    rows: int
    actor: str
    audit_id: UUID


@dataclass(frozen=True, slots=True)
class Discarded(Event):
    """An operator deleted dead messages. ``audit_id`` is where who, when and why is on record."""

    rows: int
    actor: str
    audit_id: UUID


@dataclass(frozen=True, slots=True)
class Enqueued(Event):
    """A message was written in a caller's transaction, which may still roll back, or was found there already.

    ``size`` is that of the encoded payload in bytes; ``digest`` is a SHA-256 of topic, tenant, key, content type and
    payload, which tells whether two messages are the same without telling what they say.
    """

    topic: str
    event_id: UUID
    tenant_id: UUID
    sequence: int
    size: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """The relay has stopped. The outcome of ``abandoned`` rows could not be recorded in time: perhaps delivered, they
    are dispatched again when their leases are over."""

    at: datetime
    abandoned: int


class Observer(Protocol):
    """Whoever listens. Called on the event loop, between database and broker calls: return at once.

    Whatever an observer raises is logged and dropped; it cannot break the relay. Only KeyboardInterrupt and SystemExit
    go through, and end the process.
    """

    def __call__(self, event: Event, /) -> None: ...


def tell(observers: Sequence[Observer], event: Event, logger: logging.Logger = _logger) -> None:
    """Pass an event on to everyone; what one of them raises is logged and dropped."""
    for observer in observers:
        try:
            observer(event)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # nothing is waited for here: a cancellation, too, is the observer's own
            logger.exception("the observer %s failed on %s", _shown(observer), type(event).__name__)


def _shown(observer: Observer) -> str:
    """A function by its own name, an object by its class; it is not asked itself, as it may raise once more."""
    return observer.__qualname__ if isinstance(observer, _FUNCTIONS) else type(observer).__qualname__
