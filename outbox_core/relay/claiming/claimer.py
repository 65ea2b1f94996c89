"""The claimer: when to claim, and what."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import StorageError, StorageTimeout
from outbox_core.identifiers import uuid7
from outbox_core.observer import Reconnecting, SessionEnded
from outbox_core.relay.claiming.claim import ClaimExecutor
from outbox_core.relay.claiming.limits import GROWTH, ClaimLimits
from outbox_core.runtime import clock
from outbox_core.runtime.pacing import AdaptiveLimit, Every, Paced
from outbox_core.store import BEGINNING, END, Claim, Position

if TYPE_CHECKING:
    from outbox_core.relay.claiming.lost_claims import LostClaims
    from outbox_core.relay.claiming.scan import Scan
    from outbox_core.relay.dispatching.destinations import Destination
    from outbox_core.relay.dispatching.pool import Pools
    from outbox_core.relay.in_flight import Batch, InFlight
    from outbox_core.relay.leader import Leader
    from outbox_core.relay.ordering.admission import Admission
    from outbox_core.relay.ordering.keys import Keys
    from outbox_core.relay.ordering.watermarks import KeyWatermarks
    from outbox_core.relay.shared import Shared
    from outbox_core.runtime.wakeups import Wakeups
    from outbox_core.table import TableName

_AHEAD: Final = 3
"""Claims' worth of rows that may be in flight when the next is sent: one is being dispatched, the others recorded."""
_TICK_SECONDS: Final = 0.25
_SLOW_SECONDS: Final = 1.0
"""A key whose messages wait for each other this long is not claimed any more until they are resolved."""
_MAX_RECHECKED: Final = 500


class Claimer:
    """One claim at a time. What it leases goes through the ``admission``, in the order of the claims."""

    def __init__(
        self,
        table: TableName,
        shared: Shared,
        *,
        leader: Leader,
        in_flight: InFlight,
        keys: Keys,
        watermarks: KeyWatermarks,
        scan: Scan,
        wakeups: Wakeups,
        pools: Pools,
        admission: Admission,
    ) -> None:
        settings = shared.settings
        self._table = table
        self._store = shared.store
        self._settings = settings
        self._backoff = shared.backoff
        self._destinations = shared.destinations
        self._observers = shared.observers
        self._shutdown = shared.shutdown
        self._leader = leader
        self._in_flight = in_flight
        self._keys = keys
        self._watermarks = watermarks
        self._scan = scan
        self._wakeups = wakeups
        self._pools = pools
        self._admission = admission
        self._executor = ClaimExecutor(table, shared, keys=keys, watermarks=watermarks, scan=scan)
        self._key_limits = ClaimLimits(settings)
        """Limits of claims of held keys."""
        self._tick = Every(_TICK_SECONDS)
        self._session_check = Every(settings.lock_ttl / 2)
        self._recheck_limit = AdaptiveLimit(_MAX_RECHECKED, most=_MAX_RECHECKED)
        self._recheck_pace = Paced()
        self._rechecked_at = 0.0
        self._term: int | None = None
        """That of the last claim."""
        self._passed_over: Sequence[Destination] = ()
        """Destinations that do not answer, whose rows take others' room."""

    @property
    def lost_claims(self) -> LostClaims:
        return self._executor.lost_claims

    async def run(self) -> None:
        """Claim until cancelled; back off when the database fails."""
        while self._settings.single_active and self._leader.term is None:
            await self._leader.changed(1.0)
        failures = 0
        while True:
            try:
                busy = await self.round()
                failures = 0
            except StorageError as error:
                failures += 1
                await self.back_off(error, failures)
                continue
            if not busy:
                await self._wait()

    async def _wait(self) -> None:
        """Wait until there may be something to do."""
        # Neither a held key whose time has come nor a hint is a reason to hurry while nothing can be claimed.
        hurry = self._can_claim
        wake = min(self._keys.next_wake(), self._scan.next_slice()) if hurry else inf
        if hurry and self._wakeups.hinted_at > self._tick.at - self._tick.seconds:
            # It may have been of a transaction that was open for long: only a tick finds what that wrote.
            wake = min(wake, self._tick.at)
        if wake < inf and self._wakeups.hinted_at > self._rechecked_at:
            wake = min(wake, self._recheck_pace.at)
        await self._wakeups.wait(wake - clock.now(), eager=hurry)

    async def back_off(self, error: StorageError, failures: int) -> None:
        """Wait a while after the last of ``failures`` failed rounds in a row, and then check everything anew."""
        delay = self._backoff.pause(failures)
        self._observers.notify(Reconnecting(self._table, str(error), delay))
        self._tick.reset()
        await anyio.sleep(delay)

    async def round(self) -> bool:
        """Claim what is due of held keys, then read on. False: there is nothing more to do now."""
        # A relay that may not claim just now still has to undo lost claims.
        if not self._shutdown.requested and (released := await self.lost_claims.undo()):
            self._scan.go_back_to(released)
        if not self._can_claim:
            if self._leader.term is None:
                self._term = None  # the next term may have the same number, of a server that took over
            return False
        if self._settings.single_active and self._leader.term != self._term:
            self._term = self._leader.term
            self._watermarks.forget()
            self.start_over()
        if not self._has_room():
            await self._in_flight.changed(1.0)
            return True
        await self._check_database()
        await self._recheck_held_keys()
        if self._executor.unreadable.suspected and not self._shutdown.requested:
            return (
                await self._claim_without_content()
            )  # before its key is claimed again, which would fail again
        claimed = not self._shutdown.requested and await self._claim_keys()
        if self._shutdown.requested:
            return claimed
        if self._executor.suspects_crash and self._in_flight.busy:
            return True
        return await self._read_on() or claimed

    def start_over(self) -> None:
        """Read everything again."""
        self._scan.start_over()
        self._wakeups.interrupt()

    @property
    def _can_claim(self) -> bool:
        leads = not self._settings.single_active or self._leader.term is not None
        return leads and not self._shutdown.requested and not self._destinations.all_blocked

    def _has_room(self) -> bool:
        """True when more may be claimed. What waits for a destination that does not answer takes no other's room."""
        self._passed_over = ()
        ahead = _AHEAD * max(self._scan.limits.rows.value, self._settings.batch_size)
        if self._in_flight.has_room(0 if self._executor.suspects_crash else ahead):
            return True
        if self._executor.suspects_crash:
            return False
        now = clock.now()
        self._passed_over = stuck = self._destinations.stuck(now)
        most = 2 * _AHEAD * GROWTH * self._settings.batch_size
        slow = self._keys.hold_slow(now, now - _SLOW_SECONDS + self._settings.trusted)
        waiting = self._pools.backlog(stuck) + min(slow, most)
        return bool(waiting) and self._in_flight.has_room(ahead + waiting, shares=2)

    async def _read_on(self) -> bool:
        """Claim from where the scan is."""
        if self._keys.crowded:
            self._scan.skip()
        read = self._scan.next_range(clock.now(), from_beginning=self._executor.suspects_crash)
        try:
            until = await read.limits.end(self._store, self._table, read.since)
            batch = await self._executor.claim(self._claim(read.since, until, read.limits.rows.value))
        except StorageError as error:
            self._scan.failed(read, error)
            raise
        last = batch.last if batch.full else None if until == END else until
        self._scan.read(read, last, batch, of_use=batch.full and not self._keys.crowded)
        await self._admit(batch)
        return batch.full or self._executor.suspects_crash or last is not None

    async def _claim_keys(self) -> bool:
        """Claim from held keys whose time has come."""
        if self._keys.next_wake() <= clock.now():
            # What was claimed before may have rows of these keys, and it is not known yet whether they are in order.
            self._admission.flush()
        limits = self._key_limits
        keys = self._keys.due(clock.now(), min(limits.rows.value, self._settings.batch_size))
        if not keys:
            return False
        began = clock.now()
        try:
            claim = self._claim(BEGINNING, limit=limits.rows.value)
            batch = await self._executor.claim(claim, self._watermarks.requests(keys))
        except StorageError as error:
            limits.failed(error)
            raise
        limits.claimed(batch, clock.now() - began)
        await self._admit(batch)
        return batch.count > 0

    async def _claim_without_content(self) -> bool:
        """Find out whether there is a row that cannot be read, which keeps claims from coming to their end."""
        self._admission.flush()
        claim, keys = self._executor.unreadable.taken(self._claim(BEGINNING))
        await self._admit(await self._executor.claim(claim, keys))
        self.start_over()
        return True

    async def _admit(self, batch: Batch) -> None:
        if batch.count:
            self._wakeups.worked()
        if self._executor.suspects_crash:
            await self._admission.put_alone(batch)
        else:
            self._admission.put(batch)

    def _claim(self, since: Position, until: Position = END, limit: int = 1) -> Claim:
        settings = self._settings
        ordered = settings.single_active
        return Claim(
            token=uuid7(),
            term=self._term if ordered else None,
            limit=1 if self._executor.suspects_crash else limit,
            max_bytes=settings.batch_bytes,
            lock_ttl=settings.lock_ttl,
            since=since,
            until=until,
            held_keys=self._keys.held() if ordered else (),
            blocked_topics=self._destinations.blocked_topics(self._passed_over),
            own_tokens=self._in_flight.tokens() if ordered else (),
            unordered_ids=self._in_flight.unordered_ids() if ordered else (),
            dead_hold_keys=settings.on_dead == "block",
            find_predecessors=not self._watermarks.find_separately,
        )

    async def _check_database(self) -> None:
        """Ask now and then for the clock and for running transactions, and end sessions of frozen relays."""
        now = clock.now()
        if not self._tick.due(now):
            return
        tick = await self._store.tick(self._table)
        self._scan.ticked(tick)
        self._watermarks.ticked(tick)
        if self._session_check.due(now):
            for pid in await self._store.end_stuck_sessions(self._table, self._settings.lock_ttl):
                self._observers.notify(SessionEnded(self._table, pid))

    async def _recheck_held_keys(self) -> None:
        """Ask now and then whether the first messages of held keys changed: an operator may have made one due, or
        resolved it. By turns, and fewer of them when the database did not come to the end."""
        now = clock.now()
        if now < self._recheck_pace.at:
            return
        self._rechecked_at = now
        self._recheck_pace.postpone(now)
        keys = self._keys.waiting(now, self._recheck_limit.value)
        if keys:
            spans, view = self._watermarks.spans_of_all(keys), self._claim(BEGINNING).view
            try:
                found = await self._store.predecessors(self._table, spans, view)
            except StorageTimeout:
                self._recheck_limit.shrink()
                raise
            self._recheck_limit.grow()
            self._keys.rechecked(keys, found, clock.now())
        self._recheck_pace.ended(now, clock.now())
