"""Outages: telling a broker that is away from a message that is bad, and waiting for the broker without blame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outbox_core.relay.backoff import Backoff
    from outbox_core.store import RowId

TIMEOUTS_OF_AN_OUTAGE: Final = 3
OPENINGS_OF_A_SUSPECT: Final = 3
_MAX_SUSPICIONS: Final = 10_000


class BreakerState(StrEnum):
    """Closed: messages flow. Open: they wait. Half open: one goes ahead to see."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """One per leaf dispatcher. A state machine without a clock or a task of its own: times are passed in."""

    def __init__(self, backoff: Backoff, patience: float) -> None:
        self.state = BreakerState.CLOSED
        self.retry_at = 0.0
        self.opened_at = 0.0
        self.half_opened_at = 0.0
        self._backoff = backoff
        self._patience = patience
        self._openings = 0
        self.last_ack: float | None = None
        self._timeouts = 0
        self._probed = False
        """Whether it is half open because a probe was answered."""
        self._told = False
        """Whether the broker itself has said that it takes nothing: then an answered probe says nothing."""
        self._in_flight_at_opening: frozenset[RowId] = frozenset()
        self._suspicions: Counter[RowId] = Counter()
        self.suspects = False
        """Whether any row is under suspicion."""

    def acknowledged(self, now: float) -> bool:
        """A message arrived. True when that ends an outage."""
        self.last_ack = now
        self._timeouts = 0
        if self.state is BreakerState.CLOSED:
            return False
        self._confirm_suspicions()
        return self._close()

    def refused(self) -> bool:
        """A message was refused, by the broker or on the way to it: nobody can tell. True when that ends an outage,
        which it does only after an answered probe; it puts nobody under suspicion."""
        if self.state is not BreakerState.HALF_OPEN or not self._probed:
            return False
        return self._close()

    def answered(self) -> None:
        """The broker answered a probe: it is not away."""
        self._timeouts = 0

    def timed_out(self, now: float, in_flight_since: float) -> bool:
        """A dispatch was not answered in time. True when that makes it an outage."""
        self._timeouts += 1
        silent_since = in_flight_since if self.last_ack is None else self.last_ack
        return self._timeouts >= TIMEOUTS_OF_AN_OUTAGE and now - silent_since >= self._patience * 0.99

    def doubt(self, now: float) -> bool:
        """A suspect says that the broker is away: whether it is, a probe is to tell at once. True when that is news."""
        openings = self._openings
        news = self.open(now, ())
        self._openings, self.retry_at = openings, now
        return news

    def open(self, now: float, in_flight: Iterable[RowId], *, told: bool = False) -> bool:
        """The broker is away, or has ``told`` that it takes nothing. True when that is news; the time of the next try
        is ``retry_at``."""
        if self.state is BreakerState.OPEN:
            return False
        self._told = told
        news = self.state is BreakerState.CLOSED
        if news:
            self.opened_at = now
        self._openings += 1
        same = self.state is BreakerState.HALF_OPEN and not self._probed
        self.state = BreakerState.OPEN
        # Nothing has answered since the opening before: it is the same outage, and who was there then may be its cause.
        self._in_flight_at_opening = frozenset(in_flight) | (
            self._in_flight_at_opening if same else frozenset()
        )
        self.retry_at = now + self._backoff.delay(self._openings)
        return news

    def probe_failed(self, now: float) -> None:
        """Still away."""
        self._openings += 1
        self.retry_at = now + self._backoff.delay(self._openings)

    def half_open(self, now: float, *, answered: bool) -> None:
        """One message may go ahead: the broker has ``answered`` a probe, or there is no other way to find out.

        Without an answer nobody can be suspected yet: the broker may have been away all the time. So it is with one
        that has told that it takes nothing."""
        if self.state is BreakerState.OPEN:
            answered = answered and not self._told
            if answered:
                self._confirm_suspicions()
                self.answered()
                # It is not away: if the one that goes ahead is bad, the next is not to wait as in a long outage.
                self._openings = 0
            self._probed = answered
            self.half_opened_at = now
            self.state = BreakerState.HALF_OPEN

    def is_suspect(self, row_id: RowId) -> bool:
        """Whether a row was there each time the broker went away although it came back at once: it goes alone, and
        what it does is charged to it."""
        return self.suspicions_of(row_id) >= OPENINGS_OF_A_SUSPECT

    def suspicions_of(self, row_id: RowId) -> int:
        """How often a row was there when the broker went away although it came back at once."""
        return self._suspicions[row_id]

    def forget(self, row_id: RowId) -> None:
        """The row is resolved."""
        self._suspicions.pop(row_id, None)
        self.suspects = bool(self._suspicions)

    def _close(self) -> bool:
        self.state = BreakerState.CLOSED
        self._openings = 0
        return True

    def _confirm_suspicions(self) -> None:
        if len(self._suspicions) > _MAX_SUSPICIONS:
            self._suspicions.clear()
        self._suspicions.update(self._in_flight_at_opening)
        self.suspects = bool(self._suspicions)
        self._in_flight_at_opening = frozenset()
