"""Admission: claimed batches come into the order of their keys, and go on or back."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from outbox_core.runtime import clock
from outbox_core.runtime.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outbox_core.relay.completing.settlement import Settlement
    from outbox_core.relay.dispatching.pool import Pools
    from outbox_core.relay.in_flight import Batch, Delivery, InFlight
    from outbox_core.relay.ordering.keys import Keys
    from outbox_core.runtime.wakeups import Wakeups

_TOO_EARLY: Final = "a message before it in its key is not resolved"
_NOT_ALONE: Final = "the relay stopped before it could be dispatched alone"


class Admission:
    """Takes batches in the order in which they were leased, one after the other. Without ``ordered`` every row is ready
    at once."""

    def __init__(
        self,
        *,
        ordered: bool,
        in_flight: InFlight,
        keys: Keys,
        settlement: Settlement,
        pools: Pools,
        wakeups: Wakeups,
    ) -> None:
        self._ordered = ordered
        self._in_flight = in_flight
        self._keys = keys
        self._settlement = settlement
        self._pools = pools
        self._wakeups = wakeups
        self._batches: Mailbox[Batch] = Mailbox()

    async def run(self) -> None:
        """Admit batches until cancelled."""
        while True:
            self._admit_all(await self._batches.take())

    def put(self, batch: Batch) -> None:
        """Leave a batch for `run`: the next claim can be under way by then, so that the database works while this one
        is put in order."""
        self._in_flight.add(batch)
        self._batches.put(batch)

    def flush(self) -> None:
        """Admit everything that waits, now."""
        self._admit_all(self._batches.take_now())

    async def put_alone(self, batch: Batch) -> None:
        """Admit a batch once nothing else is busy, or its leases have run short meanwhile."""
        self._in_flight.add(batch)
        try:
            while self._in_flight.busy > batch.count and (left := batch.expires - clock.now()) > 0:
                await self._in_flight.changed(left)
        except BaseException:
            for key_id in batch.keys:
                self._keys.retry(key_id, clock.now())
            self._release(batch.deliveries(), _NOT_ALONE)
            raise
        self.flush()
        self._admit(batch)

    def _admit_all(self, batches: Iterable[Batch]) -> None:
        waiting = deque(batches)
        try:
            while waiting:
                self._admit(waiting.popleft())
        finally:
            for batch in waiting:  # those behind one that failed
                self._batches.put(batch)

    def _admit(self, batch: Batch) -> None:
        rows = self._in_flight.opened(batch)
        if not self._ordered:
            self._keys.ready.extend(rows)
            self._pools.submit()
            return
        released = self._keys.admit(batch, rows, clock.now())
        self._pools.submit()
        self._release(released, _TOO_EARLY)
        if released or batch.keys:
            self._wakeups.expect(self._keys.next_wake())

    def _release(self, rows: Sequence[Delivery], reason: str) -> None:
        """Release rows that were never in the order of their keys."""
        self._in_flight.mark_unordered(rows)
        self._settlement.release_unordered(rows, reason)
