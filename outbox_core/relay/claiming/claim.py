"""One claim, sent to the store, and what came of it: a batch, or a lost claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from outbox_core.errors import StorageError, StorageTimeout
from outbox_core.observer import Claimed, Released
from outbox_core.relay.claiming.crash_suspects import single_out, suspect_in
from outbox_core.relay.claiming.lost_claims import LostClaims
from outbox_core.relay.claiming.unreadable import UnreadableRows
from outbox_core.relay.completing.completer import report_lost
from outbox_core.relay.in_flight import Batch, Delivery
from outbox_core.relay.ordering.watermarks import KeyWatermarks, last_of_keys
from outbox_core.runtime import clock
from outbox_core.store import LAST_SEQUENCE, Claim, KeyId, KeyRequest, KeySpan, Predecessor

if TYPE_CHECKING:
    from outbox_core.relay.claiming.scan import Scan
    from outbox_core.relay.ordering.keys import Keys
    from outbox_core.relay.shared import Shared
    from outbox_core.table import TableName

_AFTER_TIMEOUT: Final = 1.0


class ClaimExecutor:
    """Sends one claim at a time, and finds among its rows those that are not like others."""

    def __init__(
        self, table: TableName, shared: Shared, *, keys: Keys, watermarks: KeyWatermarks, scan: Scan
    ) -> None:
        self._table = table
        self._store = shared.store
        self._settings = shared.settings
        self._observers = shared.observers
        self._keys = keys
        self._watermarks = watermarks
        self._scan = scan
        self.lost_claims = LostClaims(table, shared)
        self.unreadable = UnreadableRows(table, shared)
        self.suspects_crash = False
        """The last claim brought a crash suspect: the next are of one row each, which goes alone."""

    async def claim(self, claim: Claim, keys: Sequence[KeyRequest] = ()) -> Batch:
        """Lease rows, of given keys if there are any. When it raises StorageError, or is cancelled, the claim is among
        the lost ones."""
        # The store carries its calls through: here is where a stop is heard between two of them.
        await anyio.lowlevel.checkpoint_if_cancelled()
        started = clock.now()
        self._watermarks.sent()
        try:
            if keys:
                leased = await self._store.claim_keys(self._table, claim, keys)
            else:
                leased = await self._store.claim(self._table, claim)
            took = clock.now() - started
            # The store weighs rows as they are kept, which can be several times their size here.
            full = leased.count >= claim.limit or leased.bytes * 4 >= claim.max_bytes
            requested = {request.key_id: request.rows for request in keys}
            batch = Batch(claim, leased, requested, expires=started + self._settings.trusted, full=full)
            if claim.without_content:
                batch.unreadable = await self.unreadable.examine(batch)
            await self._find_predecessors(batch, keys, took, found=leased.predecessors is not None)
            suspect = suspect_in(batch, self._settings.max_attempts) if leased.recovered else None
            others = [] if suspect is None else await self._single_out(batch, suspect)
        except BaseException as error:  # a cancellation, too, may have leased rows
            if isinstance(error, StorageError):
                self.unreadable.failed(claim, keys, error)
            self.lost_claims.add(claim, keys)
            # What was not answered in time may take as long again: others have their turn before.
            again = clock.now() + (_AFTER_TIMEOUT if isinstance(error, StorageTimeout) else 0.0)
            for request in keys:
                self._keys.retry(request.key_id, again)
            raise
        self.unreadable.claimed(claim, keys, leased)
        if leased.last is not None:
            self._watermarks.drawn(leased.last[1])
            if not others and claim.term is not None and self._watermarks.in_use:
                # What a requested key had in flight was resolved before. Of another held one, rows may be going back.
                known = last_of_keys(batch.deliveries())
                sure = (
                    known
                    if keys
                    else {each: last for each, last in known.items() if not self._keys.holds(each)}
                )
                self._watermarks.verified(sure, batch.predecessors)
            self._observers.notify(Claimed(self._table, leased.count, leased.bytes, clock.now() - started))
        self.suspects_crash = suspect is not None
        return batch

    async def _find_predecessors(
        self, batch: Batch, keys: Sequence[KeyRequest], claim_seconds: float, *, found: bool
    ) -> None:
        """Find out, in a step of its own, what comes before the rows of a claim that did not find that itself, or first
        in given keys from which nothing came: the claim may have been a moment early."""
        claim = batch.claim
        if not found and claim.term is not None:
            batch.predecessors = await self._timed_predecessors(batch, keys, claim_seconds)
        if not keys:
            return
        came = {row.key_id for row in batch.deliveries()}
        missing = [KeySpan(key_id, after, LAST_SEQUENCE) for key_id, _, after in keys if key_id not in came]
        if missing:
            first = await self._store.predecessors(self._table, missing, claim.view)
            batch.predecessors = {**batch.predecessors, **first}

    async def _timed_predecessors(
        self, batch: Batch, keys: Sequence[KeyRequest], claim_seconds: float
    ) -> Mapping[KeyId, Predecessor]:
        last, view = last_of_keys(batch.deliveries()), batch.claim.view
        if not last:
            return batch.predecessors
        if keys:
            spans = [KeySpan(key_id, after, last[key_id]) for key_id, _, after in keys if key_id in last]
            return await self._store.predecessors(self._table, spans, view)
        spans = self._watermarks.spans(last)
        began = clock.now()
        try:
            found = await self._store.predecessors(self._table, spans, view)
        except StorageTimeout:
            self._watermarks.timed(claim_seconds, inf)
            raise
        self._watermarks.timed(claim_seconds, clock.now() - began)
        return found

    async def _single_out(self, batch: Batch, suspect: Delivery) -> list[Delivery]:
        """Keep the suspect alone. The others are released, attempts refunded and on record, before it is dispatched: if
        it takes the process down, it does so at its own cost alone."""
        others = single_out(batch, suspect)
        if others:
            leases = [row.lease for row in others]
            lost = await self._store.release(self._table, leases, restamp=not self._settings.single_active)
            self._scan.go_back_to(row.position for row in others)
            report_lost(self._table, others, lost, "release", self._observers)
            if len(lost) < len(others):
                reason = "a message that may crash its relay goes alone"
                self._observers.notify(Released(self._table, len(others) - len(lost), reason))
        return others
