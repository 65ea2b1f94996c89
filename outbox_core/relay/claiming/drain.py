"""Draining a table: claiming until nothing is due any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import StorageError
from outbox_core.runtime import clock

if TYPE_CHECKING:
    from outbox_core.relay.claiming.claimer import Claimer
    from outbox_core.relay.claiming.scan import Scan
    from outbox_core.relay.completing.completer import Completer
    from outbox_core.relay.dispatching.pool import Pools
    from outbox_core.relay.in_flight import InFlight
    from outbox_core.relay.leader import Leader
    from outbox_core.relay.ordering.keys import Keys
    from outbox_core.relay.shared import Shared

_MOMENT: Final = 0.05
_PATIENCE: Final = 2.0
"""Seconds in which nothing came of a key, though it should: another session may keep its first message locked."""
_MAX_FAILURES: Final = 5
"""Rounds that may fail one after another before a drain fails."""


class Drain:
    """Calls the claimer of one table, in the place of its loop."""

    def __init__(
        self,
        shared: Shared,
        *,
        claimer: Claimer,
        completer: Completer,
        leader: Leader,
        in_flight: InFlight,
        keys: Keys,
        pools: Pools,
        scan: Scan,
    ) -> None:
        self._claimer = claimer
        self._completer = completer
        self._leader = leader
        self._in_flight = in_flight
        self._destinations = shared.destinations
        self._keys = keys
        self._pools = pools
        self._scan = scan
        self._single_active = shared.settings.single_active
        self._busy_at = 0.0

    async def run(self, *, patient: bool) -> None:
        """Claim until nothing is due and nothing is in flight, or the only destination is unavailable.

        A ``patient`` one waits its turn while another relay leads. Raises StorageError when one round after another
        fails.
        """
        confirmed = False
        self._busy_at = clock.now()
        while True:
            if self._completer.refusals >= _MAX_FAILURES and self._completer.refusal is not None:
                raise self._completer.refusal
            if not self._leads:
                if self._leader.failures >= _MAX_FAILURES and self._leader.failure is not None:
                    raise self._leader.failure
                if not patient and self._leader.refused:
                    return
                confirmed = False
                await self._leader.changed(_MOMENT)
            elif await self._round():
                confirmed = confirmed and not self._in_flight.rows
            elif self._in_flight.rows:
                confirmed = False
                if self._pools.are_dispatching:
                    self._busy_at = clock.now()
                await self._in_flight.changed(_MOMENT)
            elif self._destinations.all_unavailable:
                return
            elif self._scan.is_rescanning or self._comes_soon or self._destinations.are_trying:
                await anyio.sleep(_MOMENT / 10)
            elif confirmed and self._leads:
                return
            else:
                # Once more from the beginning: what a late transaction wrote may lie behind.
                confirmed = True
                self._claimer.start_over()

    @property
    def _leads(self) -> bool:
        return not self._single_active or self._leader.term is not None

    @property
    def _comes_soon(self) -> bool:
        """True when a held key has its turn; not if nothing has come of any for a while."""
        busy_at = max(self._busy_at, self._pools.submitted_at)
        return self._keys.next_wake() <= min(clock.now() + _MOMENT, busy_at + _PATIENCE)

    async def _round(self) -> bool:
        """A round of claiming, tried again a few times: whether there may be more to do."""
        for failures in range(1, _MAX_FAILURES):
            try:
                return await self._claimer.round()
            except StorageError as error:
                await self._claimer.back_off(error, failures)
        return await self._claimer.round()
