"""Settlement: what an outcome means for its row, for its key and for its destination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from outbox_core.errors import (
    BrokerExhausted,
    BrokerUnavailable,
    ContentUnreadable,
    DispatchInterrupted,
    DispatchTimeout,
    LeaseExhausted,
    PermanentError,
    RetryAfter,
)
from outbox_core.observer import BreakerClosed, BreakerOpened
from outbox_core.redaction import summary_of, summary_of_shared
from outbox_core.relay.completing.timeouts import TimedOut
from outbox_core.relay.completing.verdict_batch import Verdict
from outbox_core.relay.in_flight import Delivery, Stage
from outbox_core.runtime import clock

if TYPE_CHECKING:
    from outbox_core.dispatcher import Outcome
    from outbox_core.relay.completing.completer import Completer
    from outbox_core.relay.dispatching.destinations import Destination
    from outbox_core.relay.ordering.keys import Keys
    from outbox_core.relay.ordering.watermarks import KeyWatermarks
    from outbox_core.relay.shared import Shared
    from outbox_core.runtime.mailbox import Mailbox
    from outbox_core.table import TableName

_COMPLETING: Final = Stage.COMPLETING  # for speed: the member of an enum is a slow attribute
MAX_RETRY_AFTER: Final = 24 * 3600.0
PARKED_SECONDS: Final = 30.0
"""How often keys parked behind an unavailable destination are rechecked: an operator may have taken the first message
away, and those after it may have another destination."""


@dataclass(frozen=True, slots=True)
class FailedDispatch:
    """A row whose dispatch ended with an error, after ``seconds``. ``shown`` is what is shown of the error."""

    row: Delivery
    error: BaseException
    seconds: float
    shown: str


class Settlement:
    """Gives every delivery exactly one verdict per lease: publish, reschedule, dead-letter or release. Never waits."""

    def __init__(
        self,
        table: TableName,
        shared: Shared,
        *,
        keys: Keys,
        watermarks: KeyWatermarks,
        completer: Completer,
        timed_out: Mailbox[TimedOut],
    ) -> None:
        self._table = table
        self._settings = shared.settings
        self._backoff = shared.backoff
        self._observers = shared.observers
        self._keys = keys
        self._watermarks = watermarks
        self._completer = completer
        self._timed_out = timed_out

    def settle(
        self,
        where: Destination,
        row: Delivery,
        outcome: Outcome,
        seconds: float,
        now: float,
        shown: str | None = None,
    ) -> None:
        """Take the outcome of a row in that has left the gate of its destination. ``shown`` is what is shown of an
        error that it shares with others."""
        if outcome is not None:
            self._fail(where, self._failed(row, outcome, seconds, shown), now)
            return
        if where.acknowledged(now):
            self._closed(where, now)
        if where.quarantine.has_suspicions:
            where.quarantine.forget(row.id)
        row.stage = _COMPLETING
        self._completer.publish(row, seconds)
        if row.key is not None:
            self._keys.succeeded(row)

    def shown_together(self, rows: Iterable[Delivery], outcomes: Sequence[Outcome]) -> dict[int, str]:
        """Find what is shown of errors that several rows got, one object for all, by the error's id. It quotes none of
        the rows: their tenants may differ."""
        found: dict[int, tuple[BaseException, list[bytes]]] = {}
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome is not None:
                found.setdefault(id(outcome), (outcome, []))[1].append(row.message.payload)
        return {
            each: summary_of_shared(error, payloads, self._settings.last_error_max_bytes)
            for each, (error, payloads) in found.items()
            if len(payloads) > 1
        }

    def reject(self, row: Delivery, error: BaseException) -> None:
        """Settle a row that is not dispatched, because it has no destination or no content. That is a failure of its
        own and of no other row."""
        self.reschedule(self._failed(row, error, 0.0))

    def reject_exhausted(self, row: Delivery) -> None:
        """Dead-letter a row that has no attempt left: its last one ended without an outcome, or it was allowed more
        before."""
        allowed, had = self._settings.max_attempts, row.message.meta.attempts - 1
        if row.recovered:
            reason = f"the lease of its last attempt ended without an outcome (max_attempts={allowed})"
        else:
            now = f"no more than max_attempts={allowed} are allowed now"
            reason = f"it has had {had} attempts, each with an outcome, and {now}"
        self._dead_letter(self._failed(row, LeaseExhausted(reason), 0.0), refund=True)

    def release(self, rows: Sequence[Delivery], reason: str, wake: float = 0.0) -> None:
        """Release rows undispatched, and the rows of their keys behind them; their keys wait until ``wake``."""
        released = list(rows)
        for row in rows:
            released.extend(self._keys.failed(row, wake, firm=True))
        self._release(released, reason)

    def release_unordered(self, rows: Sequence[Delivery], reason: str) -> None:
        """Release rows that were never in the order of their keys."""
        self._release(rows, reason)

    def park(self, rows: Sequence[Delivery], where: Destination) -> None:
        """Release rows whose destination is unavailable: their keys wait for it."""
        released, until = list(rows), clock.now() + PARKED_SECONDS
        for row in rows:
            released.extend(self._keys.park(row, where, until))
        self._release(released, f"{where.name} is unavailable")

    def charge(self, where: Destination, failed: FailedDispatch) -> None:
        """Reschedule a row at its own cost. A poison suspect that dies is none any more, and what was seen of it is no
        outage."""
        quarantine = where.quarantine
        if quarantine.has_suspicions and self.is_last(failed):
            suspected = quarantine.is_suspect(failed.row.id)
            quarantine.forget(failed.row.id)
            now, lost_contact = clock.now(), isinstance(failed.error, BrokerUnavailable | DispatchTimeout)
            if suspected and lost_contact and where.refused(now):
                self._closed(where, now)
        self.reschedule(failed)

    def excuse(self, failed: FailedDispatch) -> None:
        """Reschedule a row, refunded: its destination was unavailable."""
        self._wait(failed, self._backoff.delay(1), refund=True)

    def reschedule(self, failed: FailedDispatch) -> None:
        """Reschedule a row, charged, or dead-letter it after its last attempt."""
        if self.is_last(failed):
            self._dead_letter(failed, refund=False)
            return
        error = failed.error
        if isinstance(error, RetryAfter) and isinstance(error.delay, timedelta):
            delay = min(max(error.delay.total_seconds(), 0.0), MAX_RETRY_AFTER)
        else:
            delay = self._backoff.delay(failed.row.message.meta.attempts)
        self._wait(failed, delay, refund=False)

    def outage(self, where: Destination, outage: Sequence[FailedDispatch]) -> None:
        """Reschedule rows, refunded: they show that their destination is unavailable."""
        trial = where.breaker.is_half_open
        delay = self._open(where, outage)
        for failed in outage:
            wait = delay
            if trial:
                # Next time another goes first, if there is one: this one may be what drives the destination away, and
                # the more so the more often it was there.
                own = self._backoff.delay(where.quarantine.suspicions_of(failed.row.id) + 1)
                wait = max(delay, own) + self._settings.poll_interval
            self._wait(failed, wait, refund=True)

    def doubt(self, where: Destination, failed: FailedDispatch) -> None:
        """Have the destination probed before anything else is dispatched to it: a poison suspect pays although the
        destination may be unavailable in earnest, so that an outage, of any length, costs it one attempt. Without a
        probe nothing can tell."""
        if where.probes and not where.is_open and where.doubt(clock.now()):
            self._observers.notify(BreakerOpened(self._table, where.name, failed.shown, 0.0))

    def is_last(self, failed: FailedDispatch) -> bool:
        """True when a charged failure makes the row a dead letter."""
        return (
            isinstance(failed.error, PermanentError | ContentUnreadable)
            or failed.row.message.meta.attempts >= self._settings.max_attempts
        )

    def _fail(self, where: Destination, failed: FailedDispatch, now: float) -> None:
        row, error = failed.row, failed.error
        if isinstance(error, DispatchInterrupted):
            self.reschedule(failed)
        elif isinstance(error, DispatchTimeout):
            row.stage = Stage.JUDGING
            self._timed_out.put(TimedOut(where, failed, now - failed.seconds))
        elif isinstance(error, BrokerUnavailable) and not where.quarantine.is_suspect(row.id):
            self.outage(where, [failed])
        else:
            if isinstance(error, PermanentError | RetryAfter) and where.refused(now):
                self._closed(where, now)
            if isinstance(error, BrokerUnavailable) and not self.is_last(failed):
                self.doubt(where, failed)
            self.charge(where, failed)

    def _failed(
        self, row: Delivery, error: BaseException, seconds: float, shown: str | None = None
    ) -> FailedDispatch:
        if shown is None:
            shown = summary_of(error, row.message.payload, self._settings.last_error_max_bytes)
        return FailedDispatch(row, error, seconds, shown)

    def _closed(self, where: Destination, now: float) -> None:
        self._observers.notify(BreakerClosed(self._table, where.name, now - where.breaker.opened_at))

    def _open(self, where: Destination, outage: Sequence[FailedDispatch]) -> float:
        """Open the breaker, as the error of the first row shows; the seconds until the destination is tried again."""
        now, first = clock.now(), outage[0]
        full = isinstance(first.error, BrokerExhausted)
        was_closed = where.unavailable(now, [failed.row for failed in outage], broker_full=full)
        delay = max(where.breaker.retry_at - now, 0.0)
        if was_closed:
            self._observers.notify(BreakerOpened(self._table, where.name, first.shown, delay))
        return delay

    def _wait(self, failed: FailedDispatch, delay: float, *, refund: bool) -> None:
        row = failed.row
        self._write(Verdict(row, failed.shown, delay, refund, False, failed.seconds))
        if row.message.meta.replays:
            self._keys.succeeded(row)  # it had its place in the order long ago, and holds up no other now
            return
        behind = self._keys.failed(row, clock.now() + delay)
        self._release(behind, "the message before it in its key waits")

    def _dead_letter(self, failed: FailedDispatch, *, refund: bool) -> None:
        row = failed.row
        self._write(Verdict(row, failed.shown, 0.0, refund, True, failed.seconds))
        if row.key is not None:
            # Those behind it go on, if they may, once its death is on record: if that were lost in a crash, it would
            # be tried again and could still arrive, after them.
            behind = self._keys.failed(row, clock.now())
            self._release(behind, "the message before it in its key is dead")

    def _write(self, verdict: Verdict) -> None:
        verdict.row.stage = _COMPLETING
        self._watermarks.lower((verdict.row,))
        self._completer.fail(verdict)

    def _release(self, rows: Sequence[Delivery], reason: str) -> None:
        if rows:
            for row in rows:
                row.stage = _COMPLETING
            self._watermarks.lower(rows)
            self._completer.release(rows, reason)
