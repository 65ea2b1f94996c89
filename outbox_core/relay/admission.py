"""The way of leased rows into the relay: by the order of their keys they go on, or back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.relay import clock

if TYPE_CHECKING:
    from outbox_core.relay.hand import Hand
    from outbox_core.relay.keys import Keys
    from outbox_core.relay.wakeups import Wakeups
    from outbox_core.store import Claim, KeyId, Leased, Row

_TOO_EARLY: Final = "a message before it in its key is not resolved"
_NOT_ALONE: Final = "the relay stopped before it could be dispatched alone"


@dataclass(frozen=True, slots=True)
class Batch:
    """What one claim leased. ``followed`` are the keys it was for, with how many rows of each; ``full`` says that there
    may be more where it came from; when it ``expires``, its rows' leases are to be thought of as over."""

    claim: Claim
    leased: Leased
    followed: Mapping[KeyId, int]
    expires: float
    full: bool


class Admission:
    """Takes batches in the order in which they were leased, one after the other."""

    def __init__(
        self,
        keys: Keys,
        hand: Hand,
        *,
        ordered: bool,
        deliver: Callable[[Sequence[Row]], None],
        release: Callable[[Sequence[Row], str], None],
        wakeups: Wakeups,
    ) -> None:
        self._keys = keys
        self._hand = hand
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
            for key_id in batch.followed:
                self._keys.retry(key_id, clock.now())
            self._release_unordered(batch.leased.rows(), _NOT_ALONE)
            raise
        self.admit_all()
        self._admit(batch)

    def _take(self, batch: Batch) -> None:
        self._hand.take(batch.claim.token, batch.leased.count, batch.leased.bytes)

    def _admit(self, batch: Batch) -> None:
        leased, expires = batch.leased, batch.expires
        rows = leased.rows()
        for row in rows:
            row.expires = expires
        if not self._ordered:
            self._deliver(rows)
            return
        ready, back = self._keys.admit(rows, leased.hidden, batch.followed, clock.now(), cut=batch.full)
        self._deliver(ready)
        self._release_unordered(back, _TOO_EARLY)
        if back or batch.followed:
            self._wakeups.expect(self._keys.next_wake())

    async def _until_alone(self, batch: Batch) -> None:
        while self._hand.busy > batch.leased.count and (left := batch.expires - clock.now()) > 0:
            await self._hand.wait_for_change(left)

    def _release_unordered(self, rows: Sequence[Row], reason: str) -> None:
        """Give back rows that were never taken into the order of their keys."""
        self._hand.set_apart(rows)
        self._release(rows, reason)
