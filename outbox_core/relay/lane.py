"""One table's way through the relay: its parts, wired together, and the order in which they stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import StorageError
from outbox_core.observer import PoolerDetected
from outbox_core.relay import clock
from outbox_core.relay.admission import Admission
from outbox_core.relay.breaker import BreakerState
from outbox_core.relay.claimer import Claimer
from outbox_core.relay.completer import Completer
from outbox_core.relay.draining import Drain
from outbox_core.relay.in_flight import InFlight
from outbox_core.relay.keys import Keys
from outbox_core.relay.leader import Leader
from outbox_core.relay.outlet import Outlet
from outbox_core.relay.reach import GROWTH
from outbox_core.relay.settlement import Settlement
from outbox_core.relay.wakeups import Wakeups

if TYPE_CHECKING:
    from outbox_core.observer import Event
    from outbox_core.relay.backoff import Backoff
    from outbox_core.relay.budget import Budget
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.relay.leaf import Leaf
    from outbox_core.relay.leaves import Leaves
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.store import KeyId, Store
    from outbox_core.table import TableName

_IN_FLIGHT_BATCHES: Final = 3
_LOCK_PARTS: Final = 12
"""Somebody else's lock is waited for a tenth of the time that a statement has: what took nearly that long did wait."""
_KEPT_SECONDS: Final = 30.0
"""After which a key is asked for although its destination is still away."""


class Lane:
    """Claims, dispatches and completes for one table; shares store and destinations with the relay's other tables."""

    def __init__(
        self,
        table: TableName,
        store: Store,
        settings: RelaySettings,
        backoff: Backoff,
        leaves: Leaves,
        observe: Callable[[Event], None],
        crashed: Callable[[BaseException], None],
        *,
        budget: Budget,
    ) -> None:
        self.table = table
        self._store = store
        self._settings = settings
        self._leaves = leaves
        self._observe = observe
        self._crashed = crashed
        self._budget = budget
        self._keys = Keys()
        self.in_flight = InFlight(settings.batch_bytes * _IN_FLIGHT_BATCHES)
        self.wakeups = Wakeups(settings.poll_interval)
        self.leader = Leader(table, store.election(table), settings.takeover, observe)
        self._completer = Completer(
            table,
            store,
            delete=settings.on_published == "delete",
            restamp=not settings.single_active,
            patience=settings.database_timeout / _LOCK_PARTS,
            backoff=backoff,
            observe=observe,
            resolved=self._resolved,
            abandoned=self._abandoned,
            released=self._released,
            returning=self._returning,
            set_aside=self.in_flight.defer,
        )
        self._settlement = Settlement(
            table, settings, backoff, self._completer, self._keys, observe, self.deliver
        )
        self._admission = Admission(
            self._keys,
            self.in_flight,
            ordered=settings.single_active,
            deliver=self.deliver,
            release=self._completer.release,
            wakeups=self.wakeups,
        )
        self.claimer = Claimer(
            table,
            store,
            settings,
            backoff,
            self._keys,
            self.in_flight,
            leaves,
            self.wakeups,
            self._admission,
            term=lambda: self.leader.term,
            waiting_for=self._waiting_for,
            observe=observe,
        )
        self._outlets: dict[Leaf, Outlet] = {}
        self._kept: dict[Leaf, set[KeyId]] = {}
        """Keys whose first message waits for a destination that is away."""
        self._drain = Drain(
            self.claimer, self._completer, self.leader, self.in_flight, leaves, self._keys, self._outlets,
            single_active=settings.single_active,
        )  # fmt: skip
        self._stopping = False
        leaves.on_change(self._leaf_changed)

    async def watch(self) -> None:
        """Look into timeouts until cancelled."""
        if self._store.capabilities.pooled:
            self._observe(PoolerDetected(self.table))
        await self._settlement.examine_timeouts()

    async def claim(self) -> None:
        """Claim until cancelled, whenever this relay leads."""
        while self._settings.single_active and self.leader.term is None:
            await self.leader.wait_for_change(1.0)
        await self.claimer.run()

    async def drain(self, *, patient: bool) -> None:
        """Claim until nothing is due and nothing is in hand, or the only destination is away; `Drain` says more."""
        await self._drain.run(patient=patient)

    async def admit(self) -> None:
        """Send what is claimed on its way until cancelled."""
        await self._admission.run()

    async def complete(self) -> None:
        """Put outcomes on record until the lane has stopped and nothing is left."""
        await self._completer.run()

    def halt(self, deadline: float) -> None:
        """Give back what is not dispatched, and whatever is still claimed; cut off by ``deadline`` what is."""
        self._stopping = True
        self.leader.halt()
        self.claimer.halt()
        self._admission.admit_all()
        for outlet in self._outlets.values():
            outlet.halt(deadline)
            self._settlement.give_back(outlet.flush(), "the relay stopped")

    async def stop(self, deadline: float) -> None:
        """Wait for the end of what is dispatched, nothing being claimed any more; or leave it behind."""
        self.halt(deadline)
        async with anyio.create_task_group() as tasks:
            for outlet in self._outlets.values():
                tasks.start_soon(outlet.stop, deadline)
            tasks.start_soon(self._undo_unknown, deadline)
        self._settlement.settle_timeouts_now()
        self._completer.end()

    async def _undo_unknown(self, deadline: float) -> None:
        with anyio.move_on_after(max(deadline - clock.now(), 0.0)), suppress(StorageError):
            await self.claimer.unknown.undo(last_chance=True)

    def deliver(self, rows: Sequence[Delivery]) -> None:
        """Send rows on their way, each to its destination."""
        if self._stopping:
            self._settlement.give_back(rows, "the relay stopped")
            return
        if rows:
            self._drain.busy()
        max_attempts, topic, outlet = self._settings.max_attempts, None, None
        unreadable = self.in_flight.unreadable
        for row in rows:
            meta = row.message.meta
            if meta.attempts > max_attempts:
                self._settlement.reject(row, self._settlement.exhausted(row))
                continue
            if unreadable and (error := unreadable.get(row)) is not None:
                self._settlement.reject(row, error)
                continue
            if outlet is None or meta.topic != topic:
                topic = meta.topic
                try:
                    outlet = self._outlet(self._leaves.of(topic))
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:
                    # A router that cannot route one message has failed that one. Nothing is waited for here, so that a
                    # cancellation is not this task's, either.
                    outlet = None
                    self._settlement.reject(row, error)
                    continue
            if outlet.leaf.breaker.state is BreakerState.OPEN:
                self._keep_from(outlet.leaf, (row,))
            else:
                outlet.ready.append(row)
        for outlet in self._outlets.values():
            outlet.poke()

    def _keep_from(self, leaf: Leaf, rows: Sequence[Delivery]) -> None:
        # Their keys are not asked for until the destination is tried again; only now and then, for an operator may
        # have taken the first message away, and those after it may have another destination.
        kept = self._kept.setdefault(leaf, set())
        kept.update(row.key_id for row in rows if row.key_id is not None)
        self._settlement.give_back(rows, f"{leaf.name} is away", clock.now() + _KEPT_SECONDS)

    def _outlet(self, leaf: Leaf) -> Outlet:
        outlet = self._outlets.get(leaf)
        if outlet is None:
            outlet = self._outlets[leaf] = Outlet(
                leaf,
                timeout=self._settings.dispatch_timeout,
                budget=self._budget,
                party=leaf if self._leaves.many else self,
                window=self._settings.batch_size * GROWTH // 2,
                settle=self._settlement.settle,
                settle_window=self._settlement.settle_window,
                give_back=self._settlement.give_back,
                crashed=self._crashed,
            )
        return outlet

    def _waiting_for(self, leaves: Sequence[Leaf]) -> int:
        return sum(
            len(outlet.ready) + outlet.places for leaf, outlet in self._outlets.items() if leaf in leaves
        )

    def _leaf_changed(self, leaf: Leaf) -> None:
        outlet = self._outlets.get(leaf)
        if leaf.is_open:
            if outlet is not None:
                self._keep_from(leaf, outlet.flush())
            return
        for key_id in self._kept.pop(leaf, ()):
            self._keys.retry(key_id, clock.now())
        if outlet is not None:
            outlet.poke()
        # Also who has had no row for it: those that came while it was away were passed over.
        if leaf.breaker.state is BreakerState.CLOSED:
            self.claimer.rewind()
        else:
            self.claimer.look_for_one()

    def _returning(self, rows: Sequence[Delivery]) -> None:
        self.claimer.floors.lower(rows)

    def _resolved(self, rows: Sequence[Delivery]) -> None:
        self._keys.resolved(rows, clock.now())
        self.wakeups.expect(self._keys.next_wake())
        self.in_flight.remove(rows)

    def _abandoned(self, rows: Sequence[Delivery]) -> None:
        self.in_flight.abandon(rows)
        self._resolved(rows)

    def _released(self, rows: Sequence[Delivery]) -> None:
        # Those of held keys are followed, and those of a destination that is away are read again when it is back. If
        # there are many of these, claims would come past them again and again, and to nobody else.
        self.claimer.returned(
            [
                row
                for row in rows
                if not self._keys.holds(row.key_id) and not self._leaves.is_away(row.message.meta.topic)
            ]
        )
