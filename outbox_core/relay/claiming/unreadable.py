"""Unreadable rows: the database cannot hand out their content. Found among those that a claim takes, so that no other
fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from outbox_core.errors import ContentUnreadable, StorageError, StorageTimeout, StorageUnavailable

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Batch, Delivery
    from outbox_core.relay.shared import Shared
    from outbox_core.store import Claim, KeyId, KeyRequest, Leased, Position
    from outbox_core.table import TableName

_MOST_TIMEOUTS: Final = 3


class UnreadableRows:
    """Remembers the claim of a single row that failed over its content. That row is leased without it, read alone, and
    blamed only if that fails, too: it may be another one by now."""

    def __init__(self, table: TableName, shared: Shared) -> None:
        self._table = table
        self._store = shared.store
        self._timeouts = 0
        self._slow: tuple[Position, frozenset[KeyId]] | None = None
        """Where the claim began that was not answered in time, and the keys it was for."""
        self._failed: tuple[Claim, Sequence[KeyRequest]] | None = None

    @property
    def suspected(self) -> bool:
        """True when there is a row to search for."""
        return self._failed is not None

    def claimed(self, claim: Claim, keys: Sequence[KeyRequest], leased: Leased) -> None:
        """A claim came to its end. One that began behind the row in question, or ended before it, or was for other
        keys, says nothing about it."""
        if self._slow is None:
            return
        since, of_keys = self._slow
        if keys or of_keys:
            came_past = not of_keys.isdisjoint(request.key_id for request in keys)
        else:
            reached = claim.until if leased.last is None or leased.count < claim.limit else leased.last
            came_past = claim.since <= since < reached
        if came_past:
            self._timeouts, self._slow = 0, None

    def failed(self, claim: Claim, keys: Sequence[KeyRequest], error: StorageError) -> None:
        """A claim did not. The database was seen to answer right before it, so it may be what it had to read."""
        if claim.limit > 1 or claim.without_content:
            return
        if isinstance(error, StorageTimeout):
            self._timeouts += 1
            self._slow = (claim.since, frozenset(request.key_id for request in keys))
        if isinstance(error, ContentUnreadable) or self._timeouts >= _MOST_TIMEOUTS:
            self._failed = (claim, keys)

    def taken(self, now: Claim) -> tuple[Claim, Sequence[KeyRequest]]:
        """The claim that leases the row without its content, once: where it was taken from, on terms as they are
        ``now``."""
        if self._failed is None:
            raise AssertionError("no row is suspected")
        (failed, keys), self._failed = self._failed, None
        self._timeouts, self._slow = 0, None
        return replace(
            now, since=failed.since, until=failed.until, without_content=True, find_predecessors=True
        ), [request._replace(after=0) for request in keys]

    async def examine(self, batch: Batch) -> dict[Delivery, BaseException]:
        """Read each row of a batch that was leased without its content: what is wrong with it.

        Raises StorageError when nothing is wrong with one of them: then the leases have to be undone."""
        found: dict[Delivery, BaseException] = {}
        for row in batch.deliveries():
            try:
                await self._store.read_content(self._table, row.id)
            except ContentUnreadable as error:
                found[row] = error
            except StorageTimeout as error:
                await self._store.tick(self._table)  # raises when nothing is answered
                found[row] = error
            else:
                raise StorageUnavailable("a row was leased without its content, which can be read")
        return found
