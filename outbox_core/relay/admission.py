"""The way of leased rows into the relay: by the order of their keys they go on, or back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.relay import clock

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Batch, Delivery, InFlight
    from outbox_core.relay.keys import Keys
    from outbox_core.relay.wakeups import Wakeups

_TOO_EARLY: Final = "a message before it in its key is not resolved"
_NOT_ALONE: Final = "the relay stopped before it could be dispatched alone"


class Admission:
    """Takes batches in the order in which they were leased, one after the other."""

    def __init__(
        self,
        keys: Keys,
        in_flight: InFlight,
        *,
        ordered: bool,
        deliver: Callable[[Sequence[Delivery]], None],
        release: Callable[[Sequence[Delivery], str], None],
        wakeups: Wakeups,
    ) -> None:
        self._keys = keys
        self._in_flight = in_flight
        self._ordered = ordered
        self._deliver = deliver
        self._release = release
        self._wakeups = wakeups
        self._waiting: deque[Batch] = deque()
        self._added = anyio.Event()

    async def run(self) -> None:
        """Send batches on their way until cancelled."""
        while True:
            await self._added.wait()
            self._added = anyio.Event()
            self.admit_all()

    def admit_all(self) -> None:
        """Send what waits on its way now."""
        while self._waiting:
            self._admit(self._waiting.popleft())

    def admit_soon(self, batch: Batch) -> None:
        """Take the rows in hand, for `run` to send on: the next claim can be under way by then, so that the database
        works while these are looked at."""
        self._take(batch)
        self._waiting.append(batch)
        self._added.set()

    async def admit_alone(self, batch: Batch) -> None:
        """The same, when nothing else is in hand; or send them back because their leases ran short meanwhile."""
        self._take(batch)
        try:
            await self._until_alone(batch)
        except BaseException:
            for key_id in batch.keys:
                self._keys.retry(key_id, clock.now())
            self._release_unordered(batch.deliveries(), _NOT_ALONE)
            raise
        self.admit_all()
        self._admit(batch)

    def _take(self, batch: Batch) -> None:
        self._in_flight.add(batch)

    def _admit(self, batch: Batch) -> None:
        rows = self._in_flight.opened(batch)
        if not self._ordered:
            self._deliver(rows)
            return
        ready, back = self._keys.admit(rows, batch.hidden, batch.keys, clock.now(), cut=batch.full)
        self._deliver(ready)
        self._release_unordered(back, _TOO_EARLY)
        if back or batch.keys:
            self._wakeups.expect(self._keys.next_wake())

    async def _until_alone(self, batch: Batch) -> None:
        while self._in_flight.busy > batch.count and (left := batch.expires - clock.now()) > 0:
            await self._in_flight.changed(left)

    def _release_unordered(self, rows: Sequence[Delivery], reason: str) -> None:
        """Give back rows that were never taken into the order of their keys."""
        self._in_flight.mark_unordered(rows)
        self._release(rows, reason)
