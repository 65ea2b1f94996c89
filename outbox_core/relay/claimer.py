"""Claiming: reading on from where the last claim ended, following held keys, now and then from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import StorageError, StorageTimeout
from outbox_core.identifiers import uuid7
from outbox_core.observer import Reconnecting, SessionEnded
from outbox_core.relay import clock
from outbox_core.relay.leasing import Leasing
from outbox_core.relay.position import ScanPosition
from outbox_core.relay.reach import GROWTH, Reach
from outbox_core.relay.reviews import Reviews
from outbox_core.relay.sweep import Sweeps
from outbox_core.store import BEGINNING, END, Claim, Position, Store

if TYPE_CHECKING:
    from outbox_core.observer import Event
    from outbox_core.relay.admission import Admission
    from outbox_core.relay.backoff import Backoff
    from outbox_core.relay.floors import Floors
    from outbox_core.relay.in_flight import Batch, Delivery, InFlight
    from outbox_core.relay.keys import Keys
    from outbox_core.relay.leaf import Leaf
    from outbox_core.relay.leaves import Leaves
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.relay.unknown import UnknownClaims
    from outbox_core.relay.wakeups import Wakeups
    from outbox_core.table import TableName

_AHEAD: Final = 3
"""Claims' worth of rows that may be in hand when the next is sent: one is being dispatched, the others recorded."""
_LOOK_SECONDS: Final = 0.25
_SLOW_SECONDS: Final = 1.0
"""A key whose messages wait for each other for so long is not claimed any more until they are done with."""


class Claimer:
    """One claim at a time. Whatever it leases goes through the ``admission``, in the order of the claims."""

    def __init__(
        self,
        table: TableName,
        store: Store,
        settings: RelaySettings,
        backoff: Backoff,
        keys: Keys,
        in_flight: InFlight,
        leaves: Leaves,
        wakeups: Wakeups,
        admission: Admission,
        *,
        term: Callable[[], int | None],
        waiting_for: Callable[[Sequence[Leaf]], int],
        observe: Callable[[Event], None],
    ) -> None:
        self._table = table
        self._store = store
        self._settings = settings
        self._backoff = backoff
        self._keys = keys
        self._in_flight = in_flight
        self._leaves = leaves
        self._wakeups = wakeups
        self._admission = admission
        self._term = term
        self._waiting_for = waiting_for
        self._observe = observe
        self._position = ScanPosition()
        self._sweeps = Sweeps(settings)
        self._reach = Reach(settings)
        self._reach_of_follows = Reach(settings)
        self._next_look = 0.0
        self._next_patrol = 0.0
        self._reviews = Reviews(table, store, keys)
        self._leasing = Leasing(
            table, store, settings, keys, wakeups, self._position.back_to, observe=observe
        )
        self._halted = False
        self._led: int | None = None
        self._passed_over: Sequence[Leaf] = ()

    @property
    def unknown(self) -> UnknownClaims:
        """Claims of which nobody knows what they leased."""
        return self._leasing.unknown

    @property
    def floors(self) -> Floors:
        """From where on keys are looked at."""
        return self._leasing.floors

    @property
    def is_sweeping(self) -> bool:
        """Whether a sweep is under way: what lies before its end is not looked at yet."""
        return self._sweeps.next_slice() < inf

    def halt(self) -> None:
        """Begin no claim any more: the relay stops."""
        self._halted = True

    def returned(self, rows: Sequence[Delivery]) -> None:
        """Rows were given back: read them again."""
        self._position.back_to(row.position for row in rows)

    def rewind(self) -> None:
        """A destination is back, or the term is new: read everything again."""
        # If there is too much, as is known, sweeps come past it, and nobody waits.
        if self._reach.span is None:
            self._position.rewind()
        self._sweeps.begin_anew()
        self._wakeups.interrupt()

    def look_for_one(self) -> None:
        """A destination may be back. A message for it is wanted, to see, and nobody is to wait while it is found."""
        self._sweeps.search()
        self._wakeups.interrupt()

    async def run(self) -> None:
        """Claim until cancelled; wait when the database fails."""
        failures = 0
        while True:
            try:
                busy = await self.step()
                failures = 0
            except StorageError as error:
                failures += 1
                await self.bear(error, failures)
                continue
            if not busy:
                # Neither a held key whose time has come nor a hint is a reason to hurry while nothing can be claimed.
                hurry = self._can_claim
                wake = min(self._keys.next_wake(), self._sweeps.next_slice()) if hurry else inf
                if hurry and self._wakeups.hinted_at > self._next_look - _LOOK_SECONDS:
                    # It may have been of a transaction that was open for long: only a look finds what that wrote.
                    wake = min(wake, self._next_look)
                if wake < inf and self._wakeups.hinted_at > self._reviews.last:
                    wake = min(wake, self._reviews.next)
                await self._wakeups.wait(wake - clock.now(), eager=hurry)

    async def bear(self, error: StorageError, failures: int) -> None:
        """Wait a while after a round that failed, as so many before it, and then look at everything anew."""
        delay = self._backoff.pause(failures)
        self._observe(Reconnecting(self._table, str(error), delay))
        self._next_look = 0.0
        await anyio.sleep(delay)

    async def step(self) -> bool:
        """One round: what is due of held keys, then a claim. False when there is nothing more to do just now."""
        if not self._halted:  # whoever may not claim just now still has to give back what it may have leased
            await self.unknown.undo()
        if not self._can_claim:
            if self._term() is None:
                self._led = None  # the next term may have the same number, of a server that took over
            return False
        term = self._term()
        if self._settings.single_active and term != self._led:
            self._led = term
            self.floors.forget()
            self.rewind()
        if not self._has_room():
            await self._in_flight.changed(1.0)
            return True
        await self._look()
        if self._reviews.is_due:
            await self._reviews.hold(self.floors, self._claim(BEGINNING).view)
        if self._leasing.unreadable.suspected and not self._halted:
            return await self._read_blindly()  # before its key is followed again, which would fail again
        followed = not self._halted and await self._follow()
        if self._halted:
            return followed
        if self._leasing.cautious and self._in_flight.busy:
            return True
        return await self._read() or followed

    @property
    def _can_claim(self) -> bool:
        leads = not self._settings.single_active or self._term() is not None
        return leads and not self._halted and not self._leaves.all_shut

    def _has_room(self) -> bool:
        """Whether more may be claimed. What waits for a destination that does not answer keeps nobody else's place."""
        self._passed_over = ()
        ahead = _AHEAD * max(self._reach.limit, self._settings.batch_size)
        if self._in_flight.has_room(0 if self._leasing.cautious else ahead):
            return True
        if self._leasing.cautious:
            return False
        now = clock.now()
        self._passed_over = stuck = self._leaves.stuck(now)
        most = 2 * _AHEAD * GROWTH * self._settings.batch_size
        slow = self._keys.hold_slow(now, now - _SLOW_SECONDS + self._settings.trusted)
        waiting = self._waiting_for(stuck) + min(slow, most)
        return bool(waiting) and self._in_flight.has_room(ahead + waiting, shares=2)

    async def _read(self) -> bool:
        began = clock.now()
        sweep = None if self._leasing.cautious else self._sweeps.in_turn(began)
        if self._keys.crowded:
            self._position.skip()
        position = self._position.sent()
        since = position
        if self._leasing.cautious:
            since = BEGINNING
        elif sweep is not None:
            since = min(sweep.position, position)  # which may have gone back meanwhile
        reach = self._reach if sweep is None or since == position else sweep.reach
        try:
            until = await reach.end(self._store, self._table, since)
            batch = await self._leasing.lease(self._claim(since, until, reach.limit), ())
        except StorageError as error:
            reach.failed(error)
            self._reach.learn(reach)
            self._sweeps.reach.learn(reach)
            timed_out = isinstance(error, StorageTimeout)
            if reach.too_far and sweep is not None:
                sweep.pause()
            if (reach.too_far and sweep is None) or (
                timed_out and since == position and self._position.is_behind
            ):
                self._position.skip()
            raise
        last = batch.last if batch.full else None if until == END else until
        of_use = batch.full and not self._keys.crowded
        if sweep is None or sweep.read(last, position, began, of_use=of_use):
            self._position.read(last)
        reach.claimed(batch, clock.now() - began)
        await self._admit(batch)
        return batch.full or self._leasing.cautious or last is not None

    async def _read_blindly(self) -> bool:
        """Find out whether there is a row that cannot be read, which keeps claims from coming to their end."""
        self._admission.admit_all()
        claim, keys = self._leasing.unreadable.taken(self._claim(BEGINNING))
        await self._admit(await self._leasing.lease(claim, keys))
        self.rewind()
        return True

    async def _follow(self) -> bool:
        if self._keys.next_wake() <= clock.now():
            # What was claimed before may have rows of these keys, and it is not known yet whether they are in order.
            self._admission.admit_all()
        reach = self._reach_of_follows
        keys = self._keys.due(clock.now(), min(reach.limit, self._settings.batch_size))
        if not keys:
            return False
        began = clock.now()
        try:
            claim = self._claim(BEGINNING, limit=reach.limit)
            batch = await self._leasing.lease(claim, self.floors.requests(keys))
        except StorageError as error:
            reach.failed(error)
            raise
        reach.claimed(batch, clock.now() - began)
        await self._admit(batch)
        return batch.count > 0

    async def _admit(self, batch: Batch) -> None:
        if self._leasing.cautious:
            await self._admission.admit_alone(batch)
        else:
            self._admission.admit_soon(batch)

    def _claim(self, since: Position, until: Position = END, limit: int = 1) -> Claim:
        settings = self._settings
        return Claim(
            token=uuid7(),
            term=self._led if settings.single_active else None,
            limit=1 if self._leasing.cautious else limit,
            max_bytes=settings.batch_bytes,
            lock_ttl=settings.lock_ttl,
            since=since,
            until=until,
            held_keys=self._keys.held() if settings.single_active else (),
            blocked_topics=self._leaves.shut_topics(self._passed_over),
            own_tokens=self._in_flight.tokens() if settings.single_active else (),
            unordered_ids=self._in_flight.unordered_ids() if settings.single_active else (),
            dead_hold_keys=settings.on_dead == "block",
            find_predecessors=not self.floors.looks_apart,
        )

    async def _look(self) -> None:
        now = clock.now()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        tick = await self._store.tick(self._table)
        self._position.looked(tick)
        self.floors.looked(tick)
        if now >= self._next_patrol:
            self._next_patrol = now + self._settings.lock_ttl / 2
            for pid in await self._store.end_stuck_sessions(self._table, self._settings.lock_ttl):
                self._observe(SessionEnded(self._table, pid))
