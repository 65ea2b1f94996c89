"""Order within a key: one message of a key at a time, lowest sequence first, and none overtakes a held one.

A key is *held* while its first message waits (backing off, delayed, leased elsewhere, dead and blocking). Claims pass
over held keys; when the wait is over the key is requested: its first message alone, then more and more of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from outbox_core.relay.in_flight import Batch, Delivery, Stage

if TYPE_CHECKING:
    from outbox_core.store import KeyId, Predecessor

_WAITING: Final = Stage.WAITING  # for speed: the member of an enum is a slow attribute
MAX_HELD_IN_CLAIM: Final = 20_000
"""Held keys that a claim passes over; rows of further ones are claimed and released."""
_FIRST_STEP: Final = 1
_STEP_GROWTH: Final = 8
_MAX_REQUESTED: Final = 500
_SLOW_CHECK_SECONDS: Final = 0.25
_SOON: Final = 0.5
"""Waits that end this soon anyway are not worth a recheck."""


class Key:
    """The state of one key. Made for almost every row where keys are many, so it is written for speed."""

    __slots__ = ("active", "firm", "fresh", "id", "in_flight", "queue", "step", "wake")

    def __init__(self, key_id: KeyId) -> None:
        self.id = key_id
        self.fresh: list[Delivery] = []
        """Rows just claimed, while it is seen whether they are in order."""
        self.queue: list[Delivery] = []
        """Rows in flight that wait for the active one, by sequence."""
        self.active: Delivery | None = None
        self.in_flight = 0
        """Rows whose lease is this relay's: queued, active, or with an outcome not yet on record."""
        self.wake: float | None = None
        """When a held key may be requested; None when it is not held."""
        self.firm = False
        """True when it is held for another reason than its first message's own time."""
        self.step = _FIRST_STEP
        """Rows to ask for when the key is requested next."""


class Keys:
    """The keys of one table that have rows in flight or are held. Times are on the relay's monotonic clock."""

    def __init__(self) -> None:
        self.ready: list[Delivery] = []
        """Rows whose turn has come; `Pools.submit` empties it."""
        self._keys: dict[KeyId, Key] = {}
        self._wakes: list[tuple[float, KeyId]] = []
        self._held_count = 0
        self._turn = 0
        self._slow_rows = 0
        self._next_slow_check = 0.0
        self._parked: dict[Hashable, set[KeyId]] = {}
        """Keys whose first message waits for a destination that is unavailable."""

    def held(self) -> list[KeyId]:
        """The keys that a claim must pass over."""
        if not self._held_count:
            return []
        found = [key_id for key_id, key in self._keys.items() if key.wake is not None]
        return found[:MAX_HELD_IN_CLAIM]

    @property
    def crowded(self) -> bool:
        """True when more keys are held than a claim can take."""
        return self._held_count > MAX_HELD_IN_CLAIM

    def holds(self, key_id: KeyId | None) -> bool:
        """True when a key is held, and so requested in its time."""
        key = None if key_id is None else self._keys.get(key_id)
        return key is not None and key.wake is not None

    def next_wake(self) -> float:
        """When the next held key may be requested; infinity when none waits."""
        while self._wakes:
            wake, key_id = self._wakes[0]
            key = self._keys.get(key_id)
            if key is not None and key.wake == wake and not key.in_flight:
                return wake
            heapq.heappop(self._wakes)
        return inf

    def due(self, now: float, limit: int) -> dict[KeyId, int]:
        """Held keys whose time has come, with how many rows to ask for, ``limit`` rows in all."""
        wanted: dict[KeyId, int] = {}
        while limit > 0 and len(wanted) < _MAX_REQUESTED and self.next_wake() <= now:
            _, key_id = heapq.heappop(self._wakes)
            if key_id in wanted:
                continue
            wanted[key_id] = min(self._keys[key_id].step, limit)
            limit -= wanted[key_id]
        return wanted

    def hold_slow(self, now: float, expire: float) -> int:
        """Hold keys whose next row has been waiting for another for a second, that is, whose lease will ``expire`` by
        then: claims must bring no more of these keys, and they are requested when the last row is done with. How many
        rows wait in such keys, as of the last check."""
        if now >= self._next_slow_check:
            self._next_slow_check = now + _SLOW_CHECK_SECONDS
            slow = [key for key in self._keys.values() if key.queue and key.queue[0].expires <= expire]
            for key in slow:
                if key.wake is None:
                    self._hold(key, now, firm=True)
            self._slow_rows = sum(len(key.queue) for key in slow)
        return self._slow_rows

    def waiting(self, now: float, limit: int) -> list[KeyId]:
        """Held keys that wait for their first message's time, taken in turn, at most ``limit``."""
        if not self._held_count:
            return []
        found = [
            key_id
            for key_id, key in self._keys.items()
            if key.wake is not None and key.wake > now + _SOON and not key.in_flight and not key.firm
        ]
        first = self._turn if self._turn < len(found) else 0
        self._turn = first + limit
        return found[first : first + limit]

    def rechecked(self, asked: Iterable[KeyId], found: Mapping[KeyId, Predecessor], now: float) -> None:
        """The first message of a waiting key was rechecked: it may be due sooner by now, or gone."""
        for key_id in asked:
            key = self._keys.get(key_id)
            if key is None or key.wake is None or key.in_flight or key.firm:
                continue
            first = found.get(key_id)
            wait = 0.0 if first is None else inf if first.wait is None else first.wait
            if now + wait < key.wake - _SOON:
                self._hold(key, now + wait)

    def admit(self, batch: Batch, rows: Iterable[Delivery], now: float) -> list[Delivery]:
        """Take the rows of a batch in; those to release at once, because they would overtake another.

        A key of the batch's claim of which less came than was asked for is free, unless the claim was cut short.
        """
        released: list[Delivery] = []
        predecessors, requested = batch.predecessors, batch.keys
        keys = self._gather(rows)
        for key_id, asked in requested.items():
            key = self._keys.get(key_id)
            if key is None or len(key.fresh) >= asked:
                continue
            if not key.fresh and (first := predecessors.get(key_id)) is not None:
                self._hold(key, now + _wait(first))
            elif not batch.full:
                self._free(key)
            elif not key.fresh:
                self._hold(key, now)
        for key in keys:
            claimed, key.fresh = key.fresh, []
            if key.wake is not None and key.id not in requested:
                # Held since the claim was sent: its first message failed meanwhile.
                _leave_out(claimed, released)
                continue
            if predecessors and (predecessor := predecessors.get(key.id)) is not None:
                claimed = self._held_behind(predecessor, key, claimed, now, released)
            self._admit_key(key, claimed)
        return released

    def _gather(self, rows: Iterable[Delivery]) -> list[Key]:
        """Put rows with their keys; the keys that have any. Rows without one are ready."""
        known, ready = self._keys, self.ready
        keys: list[Key] = []
        for row in rows:
            key_id = row.key_id
            if key_id is None:
                ready.append(row)
                continue
            key = known.get(key_id)
            if key is None:
                key = known[key_id] = Key(key_id)
            row.key = key
            if not key.fresh:
                keys.append(key)
            key.fresh.append(row)
        return keys

    def _held_behind(
        self,
        predecessor: Predecessor,
        key: Key,
        claimed: list[Delivery],
        now: float,
        released: list[Delivery],
    ) -> list[Delivery]:
        _leave_out([row for row in claimed if row.message.meta.sequence >= predecessor.sequence], released)
        self._hold(key, now + _wait(predecessor))
        return [row for row in claimed if row.message.meta.sequence < predecessor.sequence]

    def _admit_key(self, key: Key, claimed: list[Delivery]) -> None:
        if not claimed:
            self._forget_if_idle(key)
            return
        key.in_flight += len(claimed)
        if len(claimed) == 1 and key.active is None and not key.queue:
            key.active = claimed[0]
            self.ready.append(key.active)
            return
        for row in claimed:
            row.stage = _WAITING
        key.queue.extend(claimed)
        key.queue.sort(key=_sequence)
        if key.active is None:
            key.active = key.queue.pop(0)
            self.ready.append(key.active)

    def retry(self, key_id: KeyId, now: float) -> None:
        """The request for the key did not work: do it again."""
        key = self._keys.get(key_id)
        if key is not None and key.wake is not None:
            self._hold(key, now)

    def succeeded(self, row: Delivery) -> None:
        """The active row is done with (acknowledged, or dead and not blocking): the next of its key is ready."""
        key = row.key
        if key is None or key.active is not row:
            return
        if key.step < _MAX_REQUESTED:
            key.step = min(key.step * _STEP_GROWTH, _MAX_REQUESTED)
        if key.queue:
            key.active = key.queue.pop(0)
            self.ready.append(key.active)
        else:
            key.active = None

    def failed(self, row: Delivery, wake: float, *, firm: bool = False) -> list[Delivery]:
        """The active row waits until ``wake``, and its key with it, whether it was dispatched or leaves
        undispatched; the rows of the key to release. A ``firm`` wait is not the row's own: it may well be due."""
        key = row.key
        if key is None:
            return []
        if key.active is row:
            key.active = None
        key.step = _FIRST_STEP
        self._hold(key, wake, firm=firm)
        back, key.queue = key.queue, []
        return back

    def park(self, row: Delivery, where: Hashable, until: float) -> list[Delivery]:
        """The same for a row whose destination is unavailable: its key waits for `unpark`, or until then."""
        if row.key_id is not None:
            self._parked.setdefault(where, set()).add(row.key_id)
        return self.failed(row, until, firm=True)

    def unpark(self, where: Hashable, now: float) -> None:
        """A destination may take messages again: the keys that wait for it have their turn."""
        for key_id in self._parked.pop(where, ()):
            self.retry(key_id, now)

    def resolved(self, rows: Iterable[Delivery], now: float) -> None:
        """The outcomes of rows are on record, or their leases are lost: they are no longer in flight."""
        for row in rows:
            key = row.key
            if key is None:
                continue
            key.in_flight -= 1
            if key.in_flight:
                continue
            if key.wake is not None:
                # Everything asked for went through, or the wait was set before the row left: go on when it is time.
                wake = max(key.wake, now) if key.step == _FIRST_STEP else now
                self._hold(key, wake, firm=key.firm)
            self._forget_if_idle(key)

    def _hold(self, key: Key, wake: float, *, firm: bool = False) -> None:
        if key.wake is None:
            self._held_count += 1
        key.wake = wake
        key.firm = firm
        heapq.heappush(self._wakes, (wake, key.id))

    def _free(self, key: Key) -> None:
        if key.wake is not None:
            self._held_count -= 1
        key.wake = None
        key.step = _FIRST_STEP
        self._forget_if_idle(key)

    def _forget_if_idle(self, key: Key) -> None:
        if not key.in_flight and key.wake is None and not key.fresh:
            self._keys.pop(key.id, None)


_LEAST_WAIT: Final = 0.05
"""The wait of a key whose first message is due and cannot be claimed: another session holds a lock on it."""
_DEAD_RECHECK: Final = 600.0
"""When a key that a dead message blocks is requested in any case, which leases and releases a row. That the message was
replayed or discarded is seen before, by the rechecks of waiting keys, which write nothing."""


def _wait(first: Predecessor) -> float:
    return _DEAD_RECHECK if first.wait is None else max(first.wait, _LEAST_WAIT)


def _leave_out(rows: Iterable[Delivery], released: list[Delivery]) -> None:
    """These are not taken into the order of their keys."""
    for row in rows:
        row.key = None
        released.append(row)


def _sequence(row: Delivery) -> int:
    return row.message.meta.sequence
