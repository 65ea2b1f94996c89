"""Draining a table: claiming until nothing is due any more."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import StorageError
from outbox_core.relay import clock

if TYPE_CHECKING:
    from outbox_core.relay.claimer import Claimer
    from outbox_core.relay.completer import Completer
    from outbox_core.relay.in_flight import InFlight
    from outbox_core.relay.keys import Keys
    from outbox_core.relay.leader import Leader
    from outbox_core.relay.leaf import Leaf
    from outbox_core.relay.leaves import Leaves

_MOMENT: Final = 0.05
_PATIENCE: Final = 2.0
"""Seconds in which nothing came of a key, though it should: somebody may keep its first message locked."""
_MOST_FAILURES: Final = 5
"""Rounds that may fail one after another before a drain is given up."""


class Drain:
    """Of one table, with the parts that its lane has."""

    def __init__(
        self,
        claimer: Claimer,
        completer: Completer,
        leader: Leader,
        in_flight: InFlight,
        leaves: Leaves,
        keys: Keys,
        used: Collection[Leaf],
        *,
        single_active: bool,
    ) -> None:
        self._claimer = claimer
        self._completer = completer
        self._leader = leader
        self._in_flight = in_flight
        self._leaves = leaves
        self._keys = keys
        self._used = used
        """Destinations to which something was on its way."""
        self._single_active = single_active
        self._busy_at = 0.0

    def busy(self) -> None:
        """Something is on its way to a destination."""
        self._busy_at = clock.now()

    async def run(self, *, patient: bool) -> None:
        """Claim until nothing is due and nothing is in hand, or the only destination is away.

        A ``patient`` one waits its turn while another relay leads. Raises StorageError when one round after another
        fails.
        """
        confirmed = False
        self.busy()
        while True:
            if self._completer.refusals >= _MOST_FAILURES and self._completer.refusal is not None:
                raise self._completer.refusal
            if not self._leads:
                if self._leader.failures >= _MOST_FAILURES and self._leader.failure is not None:
                    raise self._leader.failure
                if not patient and self._leader.refused:
                    return
                confirmed = False
                await self._leader.wait_for_change(_MOMENT)
            elif await self._stepped():
                confirmed = confirmed and not self._in_flight.rows
            elif self._in_flight.rows:
                confirmed = False
                if any(leaf.in_flight for leaf in self._used):
                    self.busy()
                await self._in_flight.changed(_MOMENT)
            elif self._leaves.all_away:
                return
            elif self._claimer.is_sweeping or self._comes_soon or self._leaves.is_trying:
                await anyio.sleep(_MOMENT / 10)
            elif confirmed and self._leads:
                return
            else:
                # Once more from the beginning: what a late transaction wrote may lie behind.
                confirmed = True
                self._claimer.rewind()

    @property
    def _leads(self) -> bool:
        return not self._single_active or self._leader.term is not None

    @property
    def _comes_soon(self) -> bool:
        """Whether a held key has its turn; not if nothing has come of any for a while."""
        return self._keys.next_wake() <= min(clock.now() + _MOMENT, self._busy_at + _PATIENCE)

    async def _stepped(self) -> bool:
        """A round of claiming, tried again a few times: whether there may be more to do."""
        for failures in range(1, _MOST_FAILURES):
            try:
                return await self._claimer.step()
            except StorageError as error:
                await self._claimer.bear(error, failures)
        return await self._claimer.step()
