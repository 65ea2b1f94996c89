"""Lost claims: their answer never came. What they may have leased is released, and not left until the leases end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outbox_core.errors import StorageTimeout
from outbox_core.runtime import clock

if TYPE_CHECKING:
    from outbox_core.relay.shared import Shared
    from outbox_core.store import Claim, KeyRequest, Position
    from outbox_core.table import TableName

RETRY_SECONDS: Final = 15.0
"""After an undo that was not answered in time, before it is tried again."""


@dataclass(slots=True)
class _Lost:
    claim: Claim
    keys: Sequence[KeyRequest]
    over: float
    """From then on the database is not at it any more, even if its client has gone."""
    void: float
    """From then on what it leased is free again."""
    tried: bool = False


class LostClaims:
    """Undone as soon as the database answers. A claim of which nothing is found then may still be at work in a session
    whose client has gone, and commit after that: it is undone once more when it cannot be any longer."""

    def __init__(self, table: TableName, shared: Shared) -> None:
        self._table = table
        self._store = shared.store
        self._timeout = shared.settings.database_timeout
        self._lost: list[_Lost] = []
        self._released: list[Position] = []

    def add(self, claim: Claim, keys: Sequence[KeyRequest]) -> None:
        """The claim, of these keys if there are any, may have leased rows."""
        over = clock.now() + self._timeout
        self._lost.append(_Lost(claim, keys, over, over + claim.lock_ttl))

    async def undo(self, *, last_chance: bool = False) -> list[Position]:
        """Release what can be found; from where it has to be read again. With ``last_chance`` all are tried now."""
        for lost in [each for each in self._lost if last_chance or self._is_time(each)]:
            over = clock.now() >= lost.over
            try:
                found = await self._store.undo_claim(self._table, lost.claim, lost.keys)
            except StorageTimeout:
                # It passes as much as the claim did, which may have been too much: others have their turn before it is
                # tried again, and when the leases have ended it need not be.
                lost.tried, lost.over = True, clock.now() + RETRY_SECONDS
                if clock.now() >= lost.void:
                    self._lost.remove(lost)
                raise
            lost.tried = True
            if found or over:
                self._lost.remove(lost)
            if found:
                self._released.append(lost.claim.since)
        released, self._released = self._released, []
        return released

    def _is_time(self, lost: _Lost) -> bool:
        return not lost.tried or clock.now() >= lost.over
