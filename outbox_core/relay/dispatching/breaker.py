"""The circuit breaker of a destination: closed, open or half open, and when to try again."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outbox_core.runtime.backoff import Backoff

TIMEOUTS_OF_AN_OUTAGE: Final = 3


class BreakerState(StrEnum):
    """Closed: messages flow. Open: they wait. Half open: one message tries."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


_CLOSED: Final = BreakerState.CLOSED  # for speed: the member of an enum is a slow attribute


class Breaker:
    """One per destination. A state machine without a clock or a task of its own: times are passed in.

    ``patience`` is how many seconds without an acknowledgement make timeouts an outage.
    """

    def __init__(self, backoff: Backoff, patience: float) -> None:
        self.state = BreakerState.CLOSED
        self.retry_at = 0.0
        self.opened_at = 0.0
        """When the outage began: the first opening since it was closed."""
        self.half_opened_at = 0.0
        self.closed_at = 0.0
        """When the last outage was seen to be over."""
        self.last_ack: float | None = None
        self.probe_answered = False
        """Half open because a probe was answered, and not because there is no other way to find out."""
        self._backoff = backoff
        self._patience = patience
        self._openings = 0
        self._timeouts = 0
        self._broker_full = False
        """The broker itself has said that it takes nothing: then an answered probe says nothing."""

    @property
    def is_open(self) -> bool:
        return self.state is BreakerState.OPEN

    @property
    def is_half_open(self) -> bool:
        return self.state is BreakerState.HALF_OPEN

    @property
    def is_closed(self) -> bool:
        return self.state is BreakerState.CLOSED

    def acknowledged(self, now: float) -> bool:
        """A message arrived. True when that ends an outage."""
        self.last_ack = now
        self._timeouts = 0
        return self.state is not _CLOSED and self._close(now)

    def refused(self, now: float) -> bool:
        """A message was refused, by the broker or on the way to it: nothing tells the two apart. True when that ends an
        outage, which it does only after an answered probe."""
        return self.is_half_open and self.probe_answered and self._close(now)

    def answered(self) -> None:
        """The broker answered a probe: it is available."""
        self._timeouts = 0

    def timed_out(self, now: float, dispatching_since: float) -> bool:
        """A dispatch was not answered in time. True when that makes it an outage."""
        self._timeouts += 1
        silent_since = dispatching_since if self.last_ack is None else self.last_ack
        return self._timeouts >= TIMEOUTS_OF_AN_OUTAGE and now - silent_since >= self._patience * 0.99

    def open(self, now: float, *, broker_full: bool = False) -> bool:
        """The broker is unavailable, or says that it takes nothing. True when the breaker was closed before; the time
        of the next try is ``retry_at``."""
        if self.is_open:
            return False
        self._broker_full = broker_full
        was_closed = self.is_closed
        if was_closed:
            self.opened_at = now
        self._openings += 1
        self.state = BreakerState.OPEN
        self.retry_at = now + self._backoff.delay(self._openings)
        return was_closed

    def reopen_for_probe(self, now: float) -> bool:
        """A poison suspect says that the broker is unavailable: a probe has to tell, at once. True when the breaker was
        closed before."""
        openings = self._openings
        was_closed = self.open(now)
        self._openings, self.retry_at = openings, now
        return was_closed

    def probe_failed(self, now: float) -> None:
        """Still unavailable."""
        self._openings += 1
        self.retry_at = now + self._backoff.delay(self._openings)

    def half_open(self, now: float, *, answered: bool) -> bool:
        """One message may try: the broker has ``answered`` a probe, or there is no other way to find out. True when the
        answer shows that the broker is available: that of one which says that it takes nothing does not."""
        if not self.is_open:
            return False
        self.probe_answered = answered and not self._broker_full
        if self.probe_answered:
            self.answered()
            # It is available: if the message that tries is bad, the next must not wait as in a long outage.
            self._openings = 0
        self.half_opened_at = now
        self.state = BreakerState.HALF_OPEN
        return self.probe_answered

    def _close(self, now: float) -> bool:
        self.state = BreakerState.CLOSED
        self.closed_at = now
        self._openings = 0
        return True
