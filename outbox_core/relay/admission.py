"""The way of leased rows into the relay: the order of their keys is looked into, then they go on, or back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outbox_core.relay import clock

if TYPE_CHECKING:
    from outbox_core.relay.hand import Hand
    from outbox_core.relay.keys import Key, Keys
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.store import Claim, KeyId, Row, Store
    from outbox_core.table import TableName

_UNCHECKED: Final = "the order within its key could not be checked"
_TOO_EARLY: Final = "a message before it in its key is not resolved"


@dataclass(frozen=True, slots=True)
class Batch:
    """What one claim leased. ``followed`` are the keys it was for, with how many rows of each; ``full`` says that there
    may be more where it came from."""

    claim: Claim
    rows: Sequence[Row]
    keys: Sequence[Key]
    followed: Mapping[KeyId, int]
    full: bool


class Admission:
    """Takes batches in the order in which they were leased, one after the other."""

    def __init__(
        self,
        table: TableName,
        store: Store,
        settings: RelaySettings,
        keys: Keys,
        hand: Hand,
        *,
        deliver: Callable[[Sequence[Row]], None],
        release: Callable[[Sequence[Row], str], None],
    ) -> None:
        self._table = table
        self._store = store
        self._settings = settings
        self._keys = keys
        self._hand = hand
        self._deliver = deliver
        self._release = release

    def take(
        self, claim: Claim, rows: Sequence[Row], followed: Mapping[KeyId, int], expires: float, *, full: bool
    ) -> Batch:
        """The rows are in hand from now on, and to be admitted at once."""
        self._hand.take(rows)
        for row in rows:
            row.expires = expires
        keys = self._keys.take(rows) if self._settings.single_active else ()
        return Batch(claim, rows, keys, followed, full)

    async def admit(self, batch: Batch, *, alone: bool = False) -> None:
        """See whether a message hides that comes before these, and send on those that may go.

        What is to go ``alone`` goes when nothing else is in hand, or comes back because its lease ran short meanwhile.
        """
        try:
            if alone:
                await self._until_alone(batch.rows)
            spans = self._keys.spans(batch.keys)
            hidden = (
                await self._store.predecessors(
                    self._table, batch.claim, spans, dead_too=self._settings.on_dead == "block"
                )
                if spans
                else {}
            )
        except BaseException:
            for key_id in batch.followed:
                self._keys.retry(key_id, clock.now())
            self._keys.drop(batch.keys)
            self._release_unordered(batch.rows, _UNCHECKED)
            raise
        ready, back = self._keys.admit(batch.keys, hidden, batch.followed, clock.now(), cut=batch.full)
        self._deliver([*(row for row in batch.rows if row.order is None), *ready])
        self._release_unordered(back, _TOO_EARLY)

    async def _until_alone(self, rows: Sequence[Row]) -> None:
        expires = max((row.expires for row in rows), default=0.0)
        while self._hand.rows > len(rows) and (left := expires - clock.now()) > 0:
            await self._hand.wait_for_change(left)

    def _release_unordered(self, rows: Sequence[Row], reason: str) -> None:
        """Give back rows that were never taken into the order of their keys."""
        for row in rows:
            row.order = None
        self._hand.set_apart(rows)
        self._release(rows, reason)
