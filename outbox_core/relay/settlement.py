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
from outbox_core.redaction import summary_of, summary_of_shared
from outbox_core.relay import clock
from outbox_core.relay.breaker import BreakerState
from outbox_core.relay.outcomes import Verdict

if TYPE_CHECKING:
    from outbox_core.dispatcher import Outcome
    from outbox_core.observer import Event
    from outbox_core.relay.backoff import Backoff
    from outbox_core.relay.completer import Completer
    from outbox_core.relay.keys import Keys
    from outbox_core.relay.leaf import Leaf
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.store import Row
    from outbox_core.table import TableName

MAX_RETRY_AFTER: Final = 24 * 3600.0
_LOOK_SECONDS: Final = 1.0
_TOGETHER_SECONDS: Final = 0.05
"""After a timeout, before it is judged: together with those that came right after it. They were sent together."""


@dataclass(frozen=True, slots=True)
class _TimedOut:
    leaf: Leaf
    row: Row
    error: BaseException
    seconds: float
    began: float

    @property
    def is_excused(self) -> bool:
        """Whether its destination is away, as is known, or was when this began. A suspect pays in any case."""
        away = self.leaf.breaker.state is not BreakerState.CLOSED or self.began < self.leaf.closed_at
        return away and not self.leaf.breaker.is_suspect(self.row.id)


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
        submit: Callable[[Sequence[Row]], None],
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

    def settle(self, leaf: Leaf, row: Row, outcome: Outcome, seconds: float, now: float) -> None:
        """Take an outcome in. Never waits."""
        if outcome is None:
            if leaf.acknowledged(now):
                self._observe(BreakerClosed(self._table, leaf.name, now - leaf.breaker.opened_at))
            if leaf.breaker.suspects:
                leaf.breaker.forget(row.id)
            self._completer.publish(row, seconds)
            if row.order is not None:
                self._go_on(row)
        elif isinstance(outcome, DispatchInterrupted):
            self._put_off(row, outcome, seconds)
        elif isinstance(outcome, DispatchTimeout):
            self._timed_out.append(_TimedOut(leaf, row, outcome, seconds, now - seconds))
            self._timeouts.set()
        elif isinstance(outcome, BrokerUnavailable) and not leaf.breaker.is_suspect(row.id):
            self._outage(leaf, [(row, seconds)], outcome)
        else:
            if isinstance(outcome, PermanentError | RetryAfter) and leaf.refused():
                self._observe(BreakerClosed(self._table, leaf.name, now - leaf.breaker.opened_at))
            if isinstance(outcome, BrokerUnavailable) and not self._is_last(row, outcome):
                self._see_first(leaf, row, outcome)
            self._charge(leaf, row, outcome, seconds)

    def bury(self, row: Row) -> None:
        """The row has no attempt left: its last one ended without an outcome, or it was allowed more before."""
        allowed, had = self._settings.max_attempts, row.message.meta.attempts - 1
        if row.recovered:
            reason = f"the lease of its last attempt ended without an outcome (max_attempts={allowed})"
        else:
            now = f"no more than max_attempts={allowed} are allowed now"
            reason = f"it has had {had} attempts, each with an outcome, and {now}"
        self._give_up(row, LeaseExhausted(reason), 0.0, refund=True)

    def unroutable(self, row: Row, error: BaseException) -> None:
        """No destination could be found for the row: a failure of its own, and nobody else's."""
        self._put_off(row, error, 0.0)

    def unreadable(self, row: Row, error: BaseException) -> None:
        """The database cannot hand out the row's content, now or ever."""
        self._put_off(row, error, 0.0)

    def give_back(self, rows: Sequence[Row], reason: str, wake: float = 0.0) -> None:
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
        since = now - max(case.seconds for case in cases)
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
            self._charge(leaf, case.row, case.error, case.seconds)

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
            if breaker.is_suspect(case.row.id):
                self._charge(leaf, case.row, case.error, case.seconds)
                if not before and not self._is_last(case.row, case.error):
                    charged.append(case)
            elif before:
                self._excuse(case)
            else:
                outage.append(case)
        if outage:
            self._outage(leaf, [(case.row, case.seconds) for case in outage], outage[0].error)
        for case in charged:
            self._see_first(leaf, case.row, case.error)

    def settle_timeouts_now(self) -> None:
        """The relay stops: whatever is still to be examined is put off as it is, at its own cost unless the destination
        is known to be away."""
        gathered, self._timed_out = self._timed_out, []
        for case in gathered:
            if case.is_excused:
                self._excuse(case)
            else:
                self._put_off(case.row, case.error, case.seconds)

    def _excuse(self, case: _TimedOut) -> None:
        self._wait(case.row, case.error, self._backoff.delay(1), case.seconds, refund=True)

    def _charge(self, leaf: Leaf, row: Row, error: BaseException, seconds: float) -> None:
        """The message pays. A suspect that is given up is none any more, and what was seen of it is no outage."""
        if leaf.breaker.suspects and self._is_last(row, error):
            suspected = leaf.breaker.is_suspect(row.id)
            leaf.breaker.forget(row.id)
            if suspected and isinstance(error, BrokerUnavailable | DispatchTimeout) and leaf.refused():
                self._observe(BreakerClosed(self._table, leaf.name, clock.now() - leaf.breaker.opened_at))
        self._put_off(row, error, seconds)

    def _is_last(self, row: Row, error: BaseException) -> bool:
        return (
            isinstance(error, PermanentError | ContentUnreadable)
            or row.message.meta.attempts >= self._settings.max_attempts
        )

    def _put_off(self, row: Row, error: BaseException, seconds: float) -> None:
        attempts = row.message.meta.attempts
        if self._is_last(row, error):
            self._give_up(row, error, seconds, refund=False)
            return
        if isinstance(error, RetryAfter) and isinstance(error.delay, timedelta):
            delay = min(max(error.delay.total_seconds(), 0.0), MAX_RETRY_AFTER)
        else:
            delay = self._backoff.delay(attempts)
        self._wait(row, error, delay, seconds, refund=False)

    def _outage(self, leaf: Leaf, rows: Sequence[tuple[Row, float]], error: BaseException) -> None:
        breaker = leaf.breaker
        went_ahead = breaker.state is BreakerState.HALF_OPEN
        delay = self._open(leaf, [row for row, _ in rows], rows[0][0], error)
        for row, seconds in rows:
            wait = delay
            if went_ahead:
                # Next time another goes first, if there is one: this one may be what drives the destination away, and
                # the more so the oftener it was there.
                own = self._backoff.delay(breaker.suspicions_of(row.id) + 1)
                wait = max(delay, own) + self._settings.poll_interval
            self._wait(row, error, wait, seconds, refund=True)

    def _see_first(self, leaf: Leaf, row: Row, error: BaseException) -> None:
        """A suspect pays although the destination may be away in earnest: nothing is dispatched again before that has
        answered a probe, so that an outage, of any length, costs it one attempt. Without a probe nobody can tell."""
        if leaf.probes and not leaf.is_open and leaf.doubt(clock.now()):
            self._observe(BreakerOpened(self._table, leaf.name, self._shown(row, error), 0.0))

    def _open(self, leaf: Leaf, in_flight: Sequence[Row], shown: Row, error: BaseException) -> float:
        """The destination is away, as the error of one row shows; the seconds until it is tried again."""
        now = clock.now()
        news = leaf.open(now, in_flight, told=isinstance(error, BrokerExhausted))
        delay = max(leaf.breaker.retry_at - now, 0.0)
        if news:
            self._observe(BreakerOpened(self._table, leaf.name, self._shown(shown, error), delay))
        return delay

    def _wait(self, row: Row, error: BaseException, delay: float, seconds: float, *, refund: bool) -> None:
        self._completer.fail(Verdict(row, self._shown(row, error), delay, refund, False, seconds))
        if row.message.meta.replays:
            self._go_on(row)  # it had its place in the order long ago, and holds nobody up now
            return
        behind = self._keys.failed(row, clock.now() + delay)
        self._completer.release(behind, "the message before it in its key waits")

    def _give_up(self, row: Row, error: BaseException, seconds: float, *, refund: bool) -> None:
        self._completer.fail(Verdict(row, self._shown(row, error), 0.0, refund, True, seconds))
        if row.order is not None:
            # Those behind it go on, if they may, once its death is on record: if that were lost in a crash, it would
            # be tried again and could still arrive, after them.
            behind = self._keys.failed(row, clock.now())
            self._completer.release(behind, "the message before it in its key is dead")

    def _go_on(self, row: Row) -> None:
        following = self._keys.succeeded(row)
        if following is not None:
            self._submit((following,))

    def shared(self, rows: Sequence[Row], error: BaseException) -> None:
        """These rows got one error together: what is shown of it quotes none of them. Settle each of them then."""
        payloads = [row.message.payload for row in rows]
        shown = summary_of_shared(error, payloads, self._settings.last_error_max_bytes)
        for row in rows:
            row.shown = shown

    def _shown(self, row: Row, error: BaseException) -> str:
        return row.shown or summary_of(error, row.message.payload, self._settings.last_error_max_bytes)
