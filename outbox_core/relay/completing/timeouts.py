"""Timeouts: whose fault is it that a dispatch was not answered, the message's or its destination's?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.runtime import clock

if TYPE_CHECKING:
    from outbox_core.relay.completing.settlement import FailedDispatch, Settlement
    from outbox_core.relay.dispatching.destinations import Destination
    from outbox_core.relay.dispatching.pool import Pools
    from outbox_core.relay.shared import Shared
    from outbox_core.runtime.mailbox import Mailbox

_PROBE_SECONDS: Final = 1.0
_TOGETHER_SECONDS: Final = 0.05
"""From a timeout to its verdict: those right after it were dispatched together with it, and are judged with it."""


@dataclass(frozen=True, slots=True, eq=False)
class TimedOut:
    """A dispatch that was not answered by its deadline. ``began`` is when it started."""

    destination: Destination
    failed: FailedDispatch
    began: float

    @property
    def is_excused(self) -> bool:
        """True when its destination is known to be unavailable, or was when this began. A poison suspect pays in any
        case."""
        breaker = self.destination.breaker
        unavailable = not breaker.is_closed or self.began < breaker.closed_at
        return unavailable and not self.destination.quarantine.is_suspect(self.failed.row.id)


class TimeoutReview:
    """Charges a timeout if its destination lives, and refunds it if that is unavailable."""

    def __init__(
        self, shared: Shared, *, timed_out: Mailbox[TimedOut], settlement: Settlement, pools: Pools
    ) -> None:
        self._probe_seconds = min(_PROBE_SECONDS, shared.settings.dispatch_timeout)
        self._timed_out = timed_out
        self._settlement = settlement
        self._pools = pools
        self._cases: dict[TimedOut, None] = {}
        """Under review: a stop in the middle of a probe still finds them here."""

    async def run(self) -> None:
        """Judge timeouts until cancelled."""
        while True:
            for case in await self._timed_out.take():
                self._cases[case] = None
            await anyio.sleep(_TOGETHER_SECONDS)
            self._gather()
            async with anyio.create_task_group() as judging:  # a probe that waits holds up no other's verdict
                for destination in dict.fromkeys(case.destination for case in self._cases):
                    judging.start_soon(self._review, destination)

    def settle_now(self) -> None:
        """Settle what is under review as it is, because the relay stops: charged, unless the destination is known to be
        unavailable."""
        self._gather()
        for case in self._taken(list(self._cases)):
            if case.is_excused:
                self._settlement.excuse(case.failed)
            else:
                self._settlement.reschedule(case.failed)
        self._pools.submit()

    def _gather(self) -> None:
        self._cases.update(dict.fromkeys(self._timed_out.take_now()))

    def _taken(self, cases: Sequence[TimedOut]) -> Sequence[TimedOut]:
        for case in cases:
            del self._cases[case]
        return cases

    async def _review(self, destination: Destination) -> None:
        await self._judge(destination)
        self._pools.submit()

    async def _judge(self, destination: Destination) -> None:
        cases = [case for case in self._cases if case.destination is destination]
        now = clock.now()
        since = now - max(case.failed.seconds for case in cases)
        breaker = destination.breaker
        if not breaker.is_closed:
            self._settle_as_unavailable(destination, cases)
            return
        # It may have been unavailable, and have been seen to be back a moment before this is judged.
        for case in self._taken([case for case in cases if case.is_excused]):
            self._settlement.excuse(case.failed)
        cases = [case for case in cases if case in self._cases]
        if not cases:
            return
        # The verdict of the last one: all of them add up, whichever was first.
        unavailable = [breaker.timed_out(now, since) for _ in cases][-1]
        if not unavailable and destination.probes:
            unavailable = not await destination.probe(self._probe_seconds)
            if not unavailable:
                breaker.answered()
        if unavailable:
            self._settle_as_unavailable(destination, cases)
            return
        for case in self._taken(cases):
            self._settlement.charge(destination, case.failed)

    def _settle_as_unavailable(self, destination: Destination, cases: Sequence[TimedOut]) -> None:
        """Poison suspects pay, the others do not. While half open only the message that tries has seen something."""
        breaker, quarantine = destination.breaker, destination.quarantine
        trial = breaker.is_half_open
        outage: list[FailedDispatch] = []
        charged: list[FailedDispatch] = []
        for case in self._taken(cases):
            failed, before = case.failed, trial and case.began < breaker.half_opened_at
            if quarantine.is_suspect(failed.row.id):
                self._settlement.charge(destination, failed)
                if not before and not self._settlement.is_last(failed):
                    charged.append(failed)
            elif before:
                self._settlement.excuse(failed)
            else:
                outage.append(failed)
        if outage:
            self._settlement.outage(destination, outage)
        for failed in charged:
            self._settlement.doubt(destination, failed)
