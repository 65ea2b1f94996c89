"""Claiming: reading on from where the last claim ended, following held keys, now and then from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from outbox_core.errors import StorageError
from outbox_core.identifiers import uuid7
from outbox_core.observer import Claimed, Reconnecting, Released, SessionEnded
from outbox_core.relay import clock
from outbox_core.relay.admission import Batch
from outbox_core.relay.completer import report_lost
from outbox_core.relay.position import Position
from outbox_core.relay.suspects import has_suspects, singled_out
from outbox_core.relay.unknown import UnknownClaims
from outbox_core.relay.wakeups import after_sweep
from outbox_core.store import BEGINNING, Claim, KeyId, Leased, Place, Row, Span, Store

if TYPE_CHECKING:
    from outbox_core.observer import Event
    from outbox_core.relay.admission import Admission
    from outbox_core.relay.backoff import Backoff
    from outbox_core.relay.hand import Hand
    from outbox_core.relay.keys import Keys
    from outbox_core.relay.leaves import Leaf, Leaves
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.relay.wakeups import Wakeups
    from outbox_core.table import TableName

GROWTH: Final = 10
"""How many times ``batch_size`` a claim may ask for while a backlog lasts."""
_AHEAD: Final = 3
"""Claims' worth of rows that may be in hand when the next is sent: one is being dispatched, the others recorded."""
_LOOK_SECONDS: Final = 0.25
_REVIEWED_KEYS: Final = 500
_LAST_SEQUENCE: Final = 2**63 - 1


class Claimer:
    """One claim at a time. Whatever it leases goes through the ``admission``, in the order of the claims."""

    def __init__(
        self,
        table: TableName,
        store: Store,
        settings: RelaySettings,
        backoff: Backoff,
        keys: Keys,
        hand: Hand,
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
        self._hand = hand
        self._leaves = leaves
        self._wakeups = wakeups
        self._admission = admission
        self._term = term
        self._waiting_for = waiting_for
        self._observe = observe
        self._position = Position()
        self._limit = settings.batch_size
        self._next_look = 0.0
        self._next_sweep = 0.0
        self._next_patrol = 0.0
        self._next_review = 0.0
        self._reviewed_at = 0.0
        self.unknown = UnknownClaims(
            table, store, settings.database_timeout, lambda place: self._position.back_to((place,))
        )
        self._halted = False
        self._led: int | None = None
        self._passed_over: Sequence[Leaf] = ()
        self._cautious = False
        """One row at a time: a message may be among them that takes its process down, and the others with it."""

    def halt(self) -> None:
        """Begin no claim any more: the relay stops."""
        self._halted = True

    def returned(self, rows: Sequence[Row]) -> None:
        """Rows were given back: read them again."""
        self._position.back_to(row.place for row in rows)

    def rewind(self) -> None:
        """A destination is back, or the term is new: look at everything again."""
        self._position.rewind()
        self._next_sweep = 0.0
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
                wake = self._keys.next_wake() if hurry else inf
                if hurry and self._wakeups.hinted_at > self._next_look - _LOOK_SECONDS:
                    # It may have been of a transaction that was open for long: only a look finds what that wrote.
                    wake = min(wake, self._next_look)
                if wake < inf and self._wakeups.hinted_at > self._reviewed_at:
                    wake = min(wake, self._next_review)
                await self._wakeups.wait(wake - clock.now(), eager=hurry)

    async def bear(self, error: StorageError, failures: int) -> None:
        """Wait a while after a round that failed, as so many before it, and then look at everything anew."""
        delay = self._backoff.pause(failures)
        self._observe(Reconnecting(self._table, str(error), delay))
        self._next_look = 0.0
        await anyio.sleep(delay)

    async def step(self) -> bool:
        """One round: what is due of held keys, then a claim. False when there is nothing more to do just now."""
        if not self._can_claim:
            return False
        term = self._term()
        if self._settings.single_active and term != self._led:
            self._led = term
            self.rewind()
        if not self._has_room():
            await self._hand.wait_for_change(1.0)
            return True
        await self.unknown.undo()
        await self._look()
        await self._review()
        followed = not self._halted and await self._follow()
        if self._halted:
            return followed
        if self._cautious and self._hand.rows:
            return True
        return await self._read() or followed

    @property
    def _can_claim(self) -> bool:
        leads = not self._settings.single_active or self._term() is not None
        return leads and not self._halted and not self._leaves.all_away

    def _has_room(self) -> bool:
        """Whether more may be claimed. What waits for a destination that does not answer keeps nobody else's place."""
        self._passed_over = ()
        ahead = _AHEAD * max(self._limit, self._settings.batch_size)
        if self._hand.has_room(0 if self._cautious else ahead):
            return True
        self._passed_over = stuck = [] if self._cautious else self._leaves.stuck(clock.now())
        return bool(stuck) and self._hand.has_room(ahead + self._waiting_for(stuck), shares=2)

    async def _read(self) -> bool:
        began = clock.now()
        sweeping = self._cautious or began >= self._next_sweep
        place = self._position.sent()
        batch = await self._lease(self._claim(since=BEGINNING if sweeping else place), {})
        self._position.read(batch.leased.last if batch.full else None)
        if sweeping:
            self._next_sweep = after_sweep(began)
        self._limit = self._next_limit(batch)
        await self._admit(batch)
        return batch.full or self._cautious

    def _next_limit(self, batch: Batch) -> int:
        usual, count = self._settings.batch_size, batch.leased.count
        if not batch.full:
            return usual
        if batch.claim.limit < self._limit:
            return self._limit  # a cautious claim says nothing about the backlog
        if count >= batch.claim.limit:
            return min(self._limit * 2, usual * GROWTH)
        # Full by its bytes. The database writes out every row that it weighs: no more are worth it than might fit.
        return min(self._limit, max(1, 2 * count))

    async def _follow(self) -> bool:
        if self._keys.next_wake() <= clock.now():
            # What was claimed before may have rows of these keys, and it is not known yet whether they are in order.
            self._admission.admit_all()
        keys = self._keys.due(clock.now(), min(self._limit, self._settings.batch_size))
        if not keys:
            return False
        batch = await self._lease(self._claim(since=BEGINNING), keys)
        await self._admit(batch)
        return batch.leased.count > 0

    async def _admit(self, batch: Batch) -> None:
        if self._cautious:
            await self._admission.admit_alone(batch)
        else:
            self._admission.admit_soon(batch)

    def _claim(self, since: Place) -> Claim:
        settings = self._settings
        return Claim(
            token=uuid7(),
            term=self._led if settings.single_active else None,
            limit=1 if self._cautious else self._limit,
            max_bytes=settings.batch_bytes,
            lock_ttl=settings.lock_ttl,
            since=since,
            held=self._keys.held() if settings.single_active else (),
            shut=self._leaves.shut_topics(self._passed_over),
            in_hand=self._hand.tokens if settings.single_active else (),
            apart=self._hand.apart if settings.single_active else (),
            dead_too=settings.on_dead == "block",
        )

    async def _lease(self, claim: Claim, keys: Mapping[KeyId, int]) -> Batch:
        """Lease rows. A claim whose outcome is not known is remembered, to be undone."""
        # The store carries its calls through: here is where a stop is heard between two of them.
        await anyio.lowlevel.checkpoint_if_cancelled()
        started = clock.now()
        try:
            leased = await self._leased(claim, keys)
            kept = await self._single_out(leased) if leased.recovered else leased
        except BaseException:  # a cancellation, too, may have leased rows
            self.unknown.add(claim, keys)
            for key_id in keys:
                self._keys.retry(key_id, clock.now())
            raise
        if leased.count:
            self._wakeups.worked()
            self._observe(Claimed(self._table, leased.count, leased.bytes, clock.now() - started))
        self._cautious = kept.recovered and has_suspects(kept, self._settings.max_attempts)
        # The store weighs rows as they are kept, which can be several times their size here.
        full = kept is leased and (leased.count >= claim.limit or leased.bytes * 4 >= claim.max_bytes)
        return Batch(claim, kept, keys, started + self._settings.trusted, full)

    async def _leased(self, claim: Claim, keys: Mapping[KeyId, int]) -> Leased:
        """Of keys from which nothing came it is found out who is before, and when: it may have been a moment early."""
        if not keys:
            return await self._store.claim(self._table, claim)
        leased = await self._store.follow(self._table, claim, keys)
        came = {row.key_id for row in leased.rows()}
        missing = [Span(key_id, _LAST_SEQUENCE) for key_id in keys if key_id not in came]
        if not missing:
            return leased
        first = await self._store.predecessors(self._table, claim, missing)
        return replace(leased, hidden={**leased.hidden, **first})

    async def _single_out(self, leased: Leased) -> Leased:
        """Keep one row of a claim that has suspects among its rows. The others are back, attempts refunded and on
        record, before it is dispatched: if it takes the process down, it does so at its own cost alone."""
        alone, others = singled_out(leased, self._settings.max_attempts)
        if others:
            leases = [row.lease for row in others]
            lost = await self._store.release(self._table, leases, restamp=not self._settings.single_active)
            self.returned(others)
            report_lost(self._table, others, lost, "release", self._observe)
            if len(lost) < len(others):
                reason = "a message that may crash its relay goes alone"
                self._observe(Released(self._table, len(others) - len(lost), reason))
        return alone

    async def _look(self) -> None:
        now = clock.now()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        self._position.looked(await self._store.tick(self._table))
        if now >= self._next_patrol:
            self._next_patrol = now + self._settings.lock_ttl / 2
            for pid in await self._store.end_stuck_sessions(self._table, self._settings.lock_ttl):
                self._observe(SessionEnded(self._table, pid))

    async def _review(self) -> None:
        """Held keys wait for the time their first message had when last seen; an operator may have changed it."""
        now = clock.now()
        if now < self._next_review:
            return
        self._reviewed_at = now
        keys = self._keys.waiting(now, _REVIEWED_KEYS)
        if keys:
            found = await self._store.predecessors(
                self._table,
                self._claim(since=BEGINNING),
                [Span(key_id, _LAST_SEQUENCE) for key_id in keys],
            )
            self._keys.reviewed(keys, found, clock.now())
        self._next_review = after_sweep(now)
