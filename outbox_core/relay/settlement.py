"""Deciding what a dispatch's outcome means: for its row, for its key, for its destination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import anyio

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
from outbox_core.relay import clock
from outbox_core.relay.breaker import BreakerState
from outbox_core.relay.in_flight import Delivery, Stage
from outbox_core.relay.outcomes import Verdict
from outbox_core.relay.summaries import summary_of, summary_of_shared

if TYPE_CHECKING:
    from outbox_core.dispatcher import Outcome
    from outbox_core.observer import Event
    from outbox_core.relay.backoff import Backoff
    from outbox_core.relay.completer import Completer
    from outbox_core.relay.keys import Keys
    from outbox_core.relay.leaf import Leaf
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.table import TableName

MAX_RETRY_AFTER: Final = 24 * 3600.0
_LOOK_SECONDS: Final = 1.0
_TOGETHER_SECONDS: Final = 0.05
"""After a timeout, before it is judged: together with those that came right after it. They were sent together."""


@dataclass(frozen=True, slots=True)
class FailedDispatch:
    """A row whose dispatch ended with an error, after so many seconds. ``shown`` is what is shown of the error."""

    row: Delivery
    error: BaseException
    seconds: float
    shown: str


@dataclass(frozen=True, slots=True)
class _TimedOut:
    leaf: Leaf
    failed: FailedDispatch
    began: float

    @property
    def is_excused(self) -> bool:
        """Whether its destination is away, as is known, or was when this began. A suspect pays in any case."""
        away = self.leaf.breaker.state is not BreakerState.CLOSED or self.began < self.leaf.closed_at
        return away and not self.leaf.breaker.is_suspect(self.failed.row.id)


class Settlement:
    """Every claimed row ends here exactly once per lease: acknowledged, put off, given up or given back."""

    def __init__(
        self,
        table: TableName,
        settings: RelaySettings,
        backoff: Backoff,
        completer: Completer,
        keys: Keys,
        observe: Callable[[Event], None],
        submit: Callable[[Sequence[Delivery]], None],
    ) -> None:
        self._table = table
        self._settings = settings
        self._backoff = backoff
        self._completer = completer
        self._keys = keys
        self._observe = observe
        self._submit = submit
        self._timed_out: list[_TimedOut] = []
        self._timeouts = anyio.Event()

    def settle(self, leaf: Leaf, row: Delivery, outcome: Outcome, seconds: float, now: float) -> None:
        """Take an outcome in. Never waits."""
        if outcome is None:
            self._acknowledge(leaf, row, seconds, now)
        else:
            self._fail(leaf, self._failed(row, outcome, seconds), now)

    def settle_window(
        self,
        leaf: Leaf,
        rows: Sequence[Delivery],
        outcomes: Sequence[Outcome],
        seconds: float,
        now: float,
    ) -> None:
        """Take the outcomes in of rows that were dispatched together. What is shown of an error that several of them
        got quotes none of them. Acknowledged ones come first: of a destination that is away for some of them, the
        breaker would open and close again with every pair."""
        shown = self._shown_together(rows, outcomes)
        for row, outcome in sorted(zip(rows, outcomes, strict=True), key=lambda pair: pair[1] is not None):
            leaf.ended(row)
            if outcome is None:
                self._acknowledge(leaf, row, seconds, now)
            else:
                self._fail(leaf, self._failed(row, outcome, seconds, shown.get(id(outcome))), now)

    def _acknowledge(self, leaf: Leaf, row: Delivery, seconds: float, now: float) -> None:
        if leaf.acknowledged(now):
            self._observe(BreakerClosed(self._table, leaf.name, now - leaf.breaker.opened_at))
        if leaf.breaker.suspects:
            leaf.breaker.forget(row.id)
        self._completer.publish(row, seconds)
        if row.key is not None:
            self._go_on(row)

    def _fail(self, leaf: Leaf, failed: FailedDispatch, now: float) -> None:
        row, error = failed.row, failed.error
        if isinstance(error, DispatchInterrupted):
            self._put_off(failed)
        elif isinstance(error, DispatchTimeout):
            row.stage = Stage.JUDGING
            self._timed_out.append(_TimedOut(leaf, failed, now - failed.seconds))
            self._timeouts.set()
        elif isinstance(error, BrokerUnavailable) and not leaf.breaker.is_suspect(row.id):
            self._outage(leaf, [failed])
        else:
            if isinstance(error, PermanentError | RetryAfter) and leaf.refused():
                self._observe(BreakerClosed(self._table, leaf.name, now - leaf.breaker.opened_at))
            if isinstance(error, BrokerUnavailable) and not self._is_last(failed):
                self._see_first(leaf, failed)
            self._charge(leaf, failed)

    def reject(self, row: Delivery, error: BaseException) -> None:
        """Nothing was dispatched: the row has no attempt left, no destination or no content, which is a failure of its
        own and of no other."""
        failed = self._failed(row, error, 0.0)
        if isinstance(error, LeaseExhausted):
            self._give_up(failed, refund=True)
        else:
            self._put_off(failed)

    def exhausted(self, row: Delivery) -> LeaseExhausted:
        """Why the row has no attempt left: its last one ended without an outcome, or it was allowed more before."""
        allowed, had = self._settings.max_attempts, row.message.meta.attempts - 1
        if row.recovered:
            return LeaseExhausted(
                f"the lease of its last attempt ended without an outcome (max_attempts={allowed})"
            )
        now = f"no more than max_attempts={allowed} are allowed now"
        return LeaseExhausted(f"it has had {had} attempts, each with an outcome, and {now}")

    def give_back(self, rows: Sequence[Delivery], reason: str, wake: float = 0.0) -> None:
        """Rows leave the hand undispatched, and the rows of their keys behind them too; keys wait until ``wake``."""
        back = list(rows)
        for row in rows:
            back.extend(self._keys.failed(row, wake, firm=True))
        self._completer.release(back, reason)

    async def examine_timeouts(self) -> None:
        """Find out whether timeouts are the messages' fault or the destination's. Runs until cancelled."""
        while True:
            await self._timeouts.wait()
            self._timeouts = anyio.Event()
            await anyio.sleep(_TOGETHER_SECONDS)
            async with anyio.create_task_group() as examining:  # a probe that waits keeps no other's verdict
                for leaf in dict.fromkeys(case.leaf for case in self._timed_out):
                    examining.start_soon(self._examine, leaf)

    async def _examine(self, leaf: Leaf) -> None:
        cases = [case for case in self._timed_out if case.leaf is leaf]
        if not cases:
            return
        now = clock.now()
        since = now - max(case.failed.seconds for case in cases)
        if leaf.breaker.state is not BreakerState.CLOSED:
            self._settle_while_away(leaf, cases)
            return
        # It may have been away, and have been seen to be back a moment before this is judged.
        for case in self._taken([case for case in cases if case.is_excused]):
            self._excuse(case)
        cases = [case for case in cases if not case.is_excused]
        if not cases:
            return
        # The verdict of the last one: all of them add up, whichever was first.
        away = [leaf.breaker.timed_out(now, since) for _ in cases][-1]
        if not away and leaf.probes:
            away = not await leaf.probe(min(_LOOK_SECONDS, self._settings.dispatch_timeout))
            if not away:
                leaf.breaker.answered()
        if away:
            self._settle_while_away(leaf, cases)
            return
        for case in self._taken(cases):
            self._charge(leaf, case.failed)

    def _taken(self, cases: Sequence[_TimedOut]) -> Sequence[_TimedOut]:
        """They are examined. Not before, so that a stop in the middle of a probe still finds them."""
        examined = set(map(id, cases))
        self._timed_out = [case for case in self._timed_out if id(case) not in examined]
        return cases

    def _settle_while_away(self, leaf: Leaf, cases: Sequence[_TimedOut]) -> None:
        """Suspects pay, the others do not. In the half-open state only who went ahead to see has seen something."""
        breaker = leaf.breaker
        trying, outage, charged = (
            breaker.state is BreakerState.HALF_OPEN,
            list[_TimedOut](),
            list[_TimedOut](),
        )
        for case in self._taken(cases):
            before = trying and case.began < breaker.half_opened_at
            if breaker.is_suspect(case.failed.row.id):
                self._charge(leaf, case.failed)
                if not before and not self._is_last(case.failed):
                    charged.append(case)
            elif before:
                self._excuse(case)
            else:
                outage.append(case)
        if outage:
            self._outage(leaf, [case.failed for case in outage])
        for case in charged:
            self._see_first(leaf, case.failed)

    def settle_timeouts_now(self) -> None:
        """The relay stops: whatever is still to be examined is put off as it is, at its own cost unless the destination
        is known to be away."""
        gathered, self._timed_out = self._timed_out, []
        for case in gathered:
            if case.is_excused:
                self._excuse(case)
            else:
                self._put_off(case.failed)

    def _excuse(self, case: _TimedOut) -> None:
        self._wait(case.failed, self._backoff.delay(1), refund=True)

    def _charge(self, leaf: Leaf, failed: FailedDispatch) -> None:
        """The message pays. A suspect that is given up is none any more, and what was seen of it is no outage."""
        if leaf.breaker.suspects and self._is_last(failed):
            suspected = leaf.breaker.is_suspect(failed.row.id)
            leaf.breaker.forget(failed.row.id)
            lost_contact = isinstance(failed.error, BrokerUnavailable | DispatchTimeout)
            if suspected and lost_contact and leaf.refused():
                self._observe(BreakerClosed(self._table, leaf.name, clock.now() - leaf.breaker.opened_at))
        self._put_off(failed)

    def _is_last(self, failed: FailedDispatch) -> bool:
        return (
            isinstance(failed.error, PermanentError | ContentUnreadable)
            or failed.row.message.meta.attempts >= self._settings.max_attempts
        )

    def _put_off(self, failed: FailedDispatch) -> None:
        if self._is_last(failed):
            self._give_up(failed, refund=False)
            return
        error = failed.error
        if isinstance(error, RetryAfter) and isinstance(error.delay, timedelta):
            delay = min(max(error.delay.total_seconds(), 0.0), MAX_RETRY_AFTER)
        else:
            delay = self._backoff.delay(failed.row.message.meta.attempts)
        self._wait(failed, delay, refund=False)

    def _outage(self, leaf: Leaf, outage: Sequence[FailedDispatch]) -> None:
        breaker = leaf.breaker
        went_ahead = breaker.state is BreakerState.HALF_OPEN
        delay = self._open(leaf, outage)
        for failed in outage:
            wait = delay
            if went_ahead:
                # Next time another goes first, if there is one: this one may be what drives the destination away, and
                # the more so the oftener it was there.
                own = self._backoff.delay(breaker.suspicions_of(failed.row.id) + 1)
                wait = max(delay, own) + self._settings.poll_interval
            self._wait(failed, wait, refund=True)

    def _see_first(self, leaf: Leaf, failed: FailedDispatch) -> None:
        """A suspect pays although the destination may be away in earnest: nothing is dispatched again before that has
        answered a probe, so that an outage, of any length, costs it one attempt. Without a probe nobody can tell."""
        if leaf.probes and not leaf.is_open and leaf.doubt(clock.now()):
            self._observe(BreakerOpened(self._table, leaf.name, failed.shown, 0.0))

    def _open(self, leaf: Leaf, outage: Sequence[FailedDispatch]) -> float:
        """The destination is away, as the error of the first row shows; the seconds until it is tried again."""
        now, first = clock.now(), outage[0]
        full = isinstance(first.error, BrokerExhausted)
        news = leaf.open(now, [failed.row for failed in outage], told=full)
        delay = max(leaf.breaker.retry_at - now, 0.0)
        if news:
            self._observe(BreakerOpened(self._table, leaf.name, first.shown, delay))
        return delay

    def _wait(self, failed: FailedDispatch, delay: float, *, refund: bool) -> None:
        row = failed.row
        self._completer.fail(Verdict(row, failed.shown, delay, refund, False, failed.seconds))
        if row.message.meta.replays:
            self._go_on(row)  # it had its place in the order long ago, and holds nobody up now
            return
        behind = self._keys.failed(row, clock.now() + delay)
        self._completer.release(behind, "the message before it in its key waits")

    def _give_up(self, failed: FailedDispatch, *, refund: bool) -> None:
        row = failed.row
        self._completer.fail(Verdict(row, failed.shown, 0.0, refund, True, failed.seconds))
        if row.key is not None:
            # Those behind it go on, if they may, once its death is on record: if that were lost in a crash, it would
            # be tried again and could still arrive, after them.
            behind = self._keys.failed(row, clock.now())
            self._completer.release(behind, "the message before it in its key is dead")

    def _go_on(self, row: Delivery) -> None:
        following = self._keys.succeeded(row)
        if following is not None:
            self._submit((following,))

    def _failed(
        self, row: Delivery, error: BaseException, seconds: float, shown: str | None = None
    ) -> FailedDispatch:
        if shown is None:
            shown = summary_of(error, row.message.payload, self._settings.last_error_max_bytes)
        return FailedDispatch(row, error, seconds, shown)

    def _shown_together(self, rows: Sequence[Delivery], outcomes: Sequence[Outcome]) -> dict[int, str]:
        """What is shown of the errors that several rows got together, one object for all, by the error's id."""
        found: dict[int, tuple[BaseException, list[bytes]]] = {}
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome is not None:
                found.setdefault(id(outcome), (outcome, []))[1].append(row.message.payload)
        return {
            each: summary_of_shared(error, payloads, self._settings.last_error_max_bytes)
            for each, (error, payloads) in found.items()
            if len(payloads) > 1
        }
