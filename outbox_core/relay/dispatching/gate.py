"""The gate of a destination: may this row start now?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from outbox_core.relay.dispatching.breaker import Breaker, BreakerState
from outbox_core.runtime import clock

if TYPE_CHECKING:
    from outbox_core.relay.dispatching.quarantine import Quarantine
    from outbox_core.relay.dispatching.slots import SlotUser
    from outbox_core.relay.in_flight import Delivery

_CLOSED: Final = BreakerState.CLOSED  # for speed: the member of an enum is a slow attribute


class Gate:
    """One per destination, for all tables. Everything starts while messages flow, one row at a time while a half-open
    trial finds out whether they do, and a poison suspect only alone."""

    def __init__(self, breaker: Breaker, quarantine: Quarantine) -> None:
        self.dispatching = 0
        """Rows that are with the dispatcher now."""
        self._breaker = breaker
        self._quarantine = quarantine
        self._waiting: dict[SlotUser, None] = {}

    def enter(self, row: Delivery, now: float) -> bool:
        """Let a row start, if it may. Who gets a no may `wait`."""
        breaker, quarantine = self._breaker, self._quarantine
        if quarantine.alone is not None and quarantine.alone is not row:
            return False
        if quarantine.has_suspicions or breaker.state is not _CLOSED:
            if breaker.is_open:
                return False
            suspect = quarantine.is_suspect(row.id)
            if suspect:
                # From now on no other row starts, of any table: its turn would never come.
                quarantine.alone = row
            trial = breaker.is_half_open
            if self.dispatching and (suspect or trial):
                return False
            if trial and quarantine.yields(row.message.meta.table, now):
                return False
        self.dispatching += 1
        return True

    def leave(self, row: Delivery) -> None:
        """The row is no longer with the dispatcher."""
        self.dispatching -= 1
        was_alone = self._quarantine.alone is row
        if was_alone:
            self._quarantine.alone = None
        if self._waiting and (was_alone or not self.dispatching):
            self.reopen()

    def withdraw(self, rows: Iterable[Delivery]) -> None:
        """These rows will not start: none of them has to be waited for."""
        if self._quarantine.let_go(rows) and self._waiting:
            self.reopen()

    def wait(self, pool: SlotUser) -> None:
        """Wake a pool once, when the answer may have changed: rows of several tables may wait for their turn here."""
        self._waiting[pool] = None

    def holds_back(self, pool: SlotUser, row: Delivery) -> bool:
        """True when a pool that waits here would get another no now."""
        if pool not in self._waiting:
            return False
        if self._quarantine.alone is not None:
            return True
        yields = self._quarantine.yields(row.message.meta.table, clock.now())
        return self._breaker.is_half_open and (self.dispatching > 0 or yields)

    def reopen(self) -> None:
        """Wake all that wait."""
        waiting, self._waiting = self._waiting, {}
        for pool in waiting:
            pool.wake()
