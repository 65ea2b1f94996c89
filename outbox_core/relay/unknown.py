"""Claims whose answer was lost: what they may have leased is given back, and not nobody's until the leases end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outbox_core.errors import StorageTimeout
from outbox_core.relay import clock
from outbox_core.relay.wakeups import MAX_SWEEP_SECONDS

if TYPE_CHECKING:
    from outbox_core.store import Claim, KeyRequest, Position, Store
    from outbox_core.table import TableName


@dataclass(slots=True)
class _Lost:
    claim: Claim
    keys: Sequence[KeyRequest]
    over: float
    """From then on the database is not at it any more, whoever has gone."""
    void: float
    """From then on whatever it leased is free again."""
    tried: bool = False


class UnknownClaims:
    """Undone as soon as the database answers. A claim of which nothing is found then may still be at work in a session
    whose client has gone, and commit after that: it is undone once more when it cannot be any longer."""

    def __init__(
        self, table: TableName, store: Store, timeout: float, returned: Callable[[Position], None]
    ) -> None:
        self._table = table
        self._store = store
        self._timeout = timeout
        self._returned = returned
        self._lost: list[_Lost] = []

    def add(self, claim: Claim, keys: Sequence[KeyRequest]) -> None:
        over = clock.now() + self._timeout
        self._lost.append(_Lost(claim, keys, over, over + claim.lock_ttl))

    async def undo(self, *, last_chance: bool = False) -> None:
        """Give back what can be found; by ``last_chance`` nobody will look again."""
        for lost in [each for each in self._lost if last_chance or self._is_time(each)]:
            over = clock.now() >= lost.over
            try:
                found = await self._store.undo_claim(self._table, lost.claim, lost.keys)
            except StorageTimeout:
                # It comes past as much as the claim did, which may have been too much: others have their turn before
                # it is tried again, and when the leases have ended it need not be.
                lost.tried, lost.over = True, clock.now() + MAX_SWEEP_SECONDS
                if clock.now() >= lost.void:
                    self._lost.remove(lost)
                raise
            lost.tried = True
            if found or over:
                self._lost.remove(lost)
            if found:
                self._returned(lost.claim.since)

    def _is_time(self, lost: _Lost) -> bool:
        return not lost.tried or clock.now() >= lost.over
