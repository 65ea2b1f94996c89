"""The pipeline of one table: claim, order, dispatch, complete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import StorageError
from outbox_core.observer import PoolerDetected
from outbox_core.relay.claiming.claimer import Claimer
from outbox_core.relay.claiming.drain import Drain
from outbox_core.relay.claiming.scan import Scan
from outbox_core.relay.completing.completer import Completer
from outbox_core.relay.completing.settlement import Settlement
from outbox_core.relay.completing.timeouts import TimedOut, TimeoutReview
from outbox_core.relay.dispatching.pool import Pools
from outbox_core.relay.in_flight import Delivery, InFlight
from outbox_core.relay.leader import Leader
from outbox_core.relay.ordering.admission import Admission
from outbox_core.relay.ordering.keys import Keys
from outbox_core.relay.ordering.watermarks import KeyWatermarks
from outbox_core.runtime import clock
from outbox_core.runtime.mailbox import Mailbox
from outbox_core.runtime.supervision import supervise
from outbox_core.runtime.wakeups import Wakeups

if TYPE_CHECKING:
    from outbox_core.relay.shared import Shared
    from outbox_core.table import TableName

_IN_FLIGHT_BATCHES: Final = 3
_FAILED_GRACE: Final = 1.0
"""The time for dispatches under way to end when a loop of the pipeline has died."""


class TablePipeline:
    """Builds the parts of one table and wires them: work flows down by calls, from the claimer to the completer, and
    what comes back up comes back in `complete` and `_follow_destinations`."""

    def __init__(self, table: TableName, shared: Shared) -> None:
        settings = shared.settings
        self.table = table
        self.drained = anyio.Event()
        self._shared = shared
        # owners of facts
        self.in_flight = InFlight(settings.batch_bytes * _IN_FLIGHT_BATCHES)
        self.wakeups = Wakeups(settings.poll_interval)
        self.leader = Leader(table, shared)
        self._watermarks = KeyWatermarks()
        self._keys = Keys()
        self._scan = Scan(settings)
        self._changes = shared.destinations.subscribe()
        # stages, last first: each knows only what comes after it
        self._completer = Completer(table, shared)
        timed_out = Mailbox[TimedOut]()
        self._settlement = Settlement(
            table,
            shared,
            keys=self._keys,
            watermarks=self._watermarks,
            completer=self._completer,
            timed_out=timed_out,
        )
        self._pools = Pools(shared, in_flight=self.in_flight, keys=self._keys, settlement=self._settlement)
        self._timeouts = TimeoutReview(
            shared, timed_out=timed_out, settlement=self._settlement, pools=self._pools
        )
        self._admission = Admission(
            ordered=settings.single_active,
            in_flight=self.in_flight,
            keys=self._keys,
            settlement=self._settlement,
            pools=self._pools,
            wakeups=self.wakeups,
        )
        self._claimer = Claimer(
            table,
            shared,
            leader=self.leader,
            in_flight=self.in_flight,
            keys=self._keys,
            watermarks=self._watermarks,
            scan=self._scan,
            wakeups=self.wakeups,
            pools=self._pools,
            admission=self._admission,
        )
        self._drain = Drain(
            shared,
            claimer=self._claimer,
            completer=self._completer,
            leader=self.leader,
            in_flight=self.in_flight,
            keys=self._keys,
            pools=self._pools,
            scan=self._scan,
        )

    async def run(self) -> None:
        """Claim, order and dispatch until a stop is requested, and until what was dispatching then has ended or was cut
        off."""
        await self._run(self._claimer.run)

    async def drain(self, *, patient: bool) -> None:
        """The same; ``drained`` is set once nothing is due and nothing is in flight, or a drain can do no more."""

        async def until_drained() -> None:
            await self._drain.run(patient=patient)
            self.drained.set()

        await self._run(until_drained)

    async def complete(self) -> None:
        """Write verdicts until the completer is closed and empty. What is on record frees its key and makes room; what
        was released is read again."""
        while (written := await self._completer.step()) is not None:
            if written.deferred is not None:
                self.in_flight.defer(written.deferred)
            if written.abandoned:
                self.in_flight.abandon(written.abandoned)
                self._watermarks.lower(written.abandoned)
            if written.released:
                self._scan.go_back_to(row.position for row in written.released if self._is_claimable(row))
            if written.rows:
                self._keys.resolved(written.rows, clock.now())
                self.wakeups.expect(self._keys.next_wake())
                self.in_flight.remove(written.rows)

    async def finish(self) -> None:
        """After `run`: release what the last claim brought, settle timeouts as they are and undo lost claims; then let
        `complete` end."""
        await self._stop_dispatching()
        self._timeouts.settle_now()
        await self._undo_lost_claims()
        self._completer.close()

    async def _run(self, claim: Callable[[], Awaitable[None]]) -> None:
        shutdown = self._shared.shutdown
        if self._shared.store.capabilities.pooled:
            self._shared.observers.notify(PoolerDetected(self.table))
        async with anyio.create_task_group() as stopping:
            async with anyio.create_task_group() as loops:
                for loop in (self._admission.run, self._timeouts.run, self._follow_destinations, claim):
                    loops.start_soon(supervise, loop, shutdown, _FAILED_GRACE)
                await shutdown.wait()
                # Beside the end of the claim under way, which may take long: no dispatch may outlive its deadline.
                stopping.start_soon(self._stop_dispatching)
                loops.cancel_scope.cancel()
            # Again: for what the claim under way has brought, and if a loop that died has ended the wait above.
            stopping.start_soon(self._stop_dispatching)
            # Beside dispatches that may last until the deadline, after which there is no time.
            await self._undo_lost_claims()

    async def _follow_destinations(self) -> None:
        """Act on breakers that changed, until cancelled."""
        while True:
            for where in dict.fromkeys(await self._changes.take()):
                if where.is_open:
                    self._settlement.park(self._pools.withdraw(where), where)
                    continue
                self._keys.unpark(where, clock.now())
                self._pools.wake(where)
                # Also if there has been no row for it: those that came while it was unavailable were passed over.
                self._scan.destination_back(closed=where.breaker.is_closed)
                self.wakeups.interrupt()

    async def _stop_dispatching(self) -> None:
        with anyio.CancelScope(shield=True):
            self._admission.flush()
            self._settlement.release(self._pools.withdraw(), "the relay stopped")
            await self._pools.stop()

    async def _undo_lost_claims(self) -> None:
        left = max(self._shared.shutdown.deadline - clock.now(), 0.0)
        with anyio.CancelScope(shield=True), anyio.move_on_after(left), suppress(StorageError):
            await self._claimer.lost_claims.undo(last_chance=True)

    def _is_claimable(self, row: Delivery) -> bool:
        """True when claims that read on may come to a released row. Those of held keys are requested, and those of an
        unavailable destination are read again when it is back: if there are many, claims would pass them again and
        again, and come to no other."""
        return not (
            self._keys.holds(row.key_id) or self._shared.destinations.is_unavailable(row.message.meta.topic)
        )
