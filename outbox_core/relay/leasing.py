"""One claim, sent to the store, and what came of it: rows, or an outcome that nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from outbox_core.errors import StorageError, StorageTimeout
from outbox_core.observer import Claimed, Released
from outbox_core.relay import clock
from outbox_core.relay.completer import report_lost
from outbox_core.relay.floors import Floors, last_of_keys
from outbox_core.relay.in_flight import Batch, Delivery
from outbox_core.relay.suspects import single_out, suspect_in
from outbox_core.relay.unknown import UnknownClaims
from outbox_core.relay.unreadable import Unreadable
from outbox_core.store import LAST_SEQUENCE, Claim, KeyId, KeyRequest, KeySpan, Position, Predecessor, Store

if TYPE_CHECKING:
    from outbox_core.observer import Event
    from outbox_core.relay.keys import Keys
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.relay.wakeups import Wakeups
    from outbox_core.table import TableName

_AFTER_TIMEOUT: Final = 1.0


class Leasing:
    """Remembers claims whose outcome is not known, to be undone, and rows that are not like others."""

    def __init__(
        self,
        table: TableName,
        store: Store,
        settings: RelaySettings,
        keys: Keys,
        wakeups: Wakeups,
        back_to: Callable[[Iterable[Position]], None],
        *,
        observe: Callable[[Event], None],
    ) -> None:
        self._table = table
        self._store = store
        self._settings = settings
        self._keys = keys
        self._wakeups = wakeups
        self._back_to = back_to
        self._observe = observe
        self.unknown = UnknownClaims(table, store, settings.database_timeout, lambda place: back_to((place,)))
        self.unreadable = Unreadable(table, store)
        self.floors = Floors()
        self.cautious = False
        """One row at a time: a message may be among them that takes its process down, and the others with it."""

    async def lease(self, claim: Claim, keys: Sequence[KeyRequest]) -> Batch:
        """Lease rows, of given keys if there are any. Raises StorageError, and then the claim is to be undone."""
        # The store carries its calls through: here is where a stop is heard between two of them.
        await anyio.lowlevel.checkpoint_if_cancelled()
        started = clock.now()
        self.floors.sent()
        try:
            if keys:
                leased = await self._store.claim_keys(self._table, claim, keys)
            else:
                leased = await self._store.claim(self._table, claim)
            took = clock.now() - started
            # The store weighs rows as they are kept, which can be several times their size here.
            full = leased.count >= claim.limit or leased.bytes * 4 >= claim.max_bytes
            wanted = {request.key_id: request.rows for request in keys}
            batch = Batch(claim, leased, wanted, expires=started + self._settings.trusted, full=full)
            if claim.without_content:
                batch.unreadable = await self.unreadable.examine(batch)
            await self._find_predecessors(batch, keys, took, looked=leased.predecessors is not None)
            suspect = suspect_in(batch, self._settings.max_attempts) if leased.recovered else None
            others = [] if suspect is None else await self._single_out(batch, suspect)
        except BaseException as error:  # a cancellation, too, may have leased rows
            if isinstance(error, StorageError):
                self.unreadable.failed(claim, keys, error)
            self.unknown.add(claim, keys)
            # What was not answered in time may take as long again: others have their turn before.
            again = clock.now() + (_AFTER_TIMEOUT if isinstance(error, StorageTimeout) else 0.0)
            for request in keys:
                self._keys.retry(request.key_id, again)
            raise
        self.unreadable.claimed(claim, keys, leased)
        if leased.last is not None:
            self._wakeups.worked()
            self.floors.drawn(leased.last[1])
            if not others and claim.term is not None and self.floors.in_use:
                # What a followed key had in hand was done with before. Of another that is held, some may be going back.
                known = last_of_keys(batch.deliveries())
                sure = (
                    known
                    if keys
                    else {each: last for each, last in known.items() if not self._keys.holds(each)}
                )
                self.floors.verified(sure, batch.hidden)
            self._observe(Claimed(self._table, leased.count, leased.bytes, clock.now() - started))
        self.cautious = suspect is not None
        return batch

    async def _find_predecessors(
        self, batch: Batch, keys: Sequence[KeyRequest], claim_seconds: float, *, looked: bool
    ) -> None:
        """See, in a step of its own, what comes before rows of a claim that did not look itself, or first in given keys
        from which nothing came: it may have been a moment early."""
        claim = batch.claim
        if not looked and claim.term is not None:
            batch.hidden = await self._look(batch, keys, claim_seconds)
        if not keys:
            return
        came = {row.key_id for row in batch.deliveries()}
        missing = [KeySpan(key_id, after, LAST_SEQUENCE) for key_id, _, after in keys if key_id not in came]
        if missing:
            first = await self._store.predecessors(self._table, missing, claim.view)
            batch.hidden = {**batch.hidden, **first}

    async def _look(
        self, batch: Batch, keys: Sequence[KeyRequest], claim_seconds: float
    ) -> Mapping[KeyId, Predecessor]:
        last, view = last_of_keys(batch.deliveries()), batch.claim.view
        if not last:
            return batch.hidden
        if keys:
            spans = [KeySpan(key_id, after, last[key_id]) for key_id, _, after in keys if key_id in last]
            return await self._store.predecessors(self._table, spans, view)
        spans = self.floors.spans(last)
        began = clock.now()
        try:
            hidden = await self._store.predecessors(self._table, spans, view)
        except StorageTimeout:
            self.floors.timed(claim_seconds, inf)
            raise
        self.floors.timed(claim_seconds, clock.now() - began)
        return hidden

    async def _single_out(self, batch: Batch, suspect: Delivery) -> list[Delivery]:
        """Keep the suspect alone. The others are back, attempts refunded and on record, before it is dispatched: if it
        takes the process down, it does so at its own cost alone."""
        others = single_out(batch, suspect)
        if others:
            leases = [row.lease for row in others]
            lost = await self._store.release(self._table, leases, restamp=not self._settings.single_active)
            self._back_to(row.position for row in others)
            report_lost(self._table, others, lost, "release", self._observe)
            if len(lost) < len(others):
                reason = "a message that may crash its relay goes alone"
                self._observe(Released(self._table, len(others) - len(lost), reason))
        return others
