"""Rows whose content the database cannot hand out: found among those that a claim takes, so that no other fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from outbox_core.errors import ContentUnreadable, StorageError, StorageTimeout, StorageUnavailable
from outbox_core.identifiers import uuid7

if TYPE_CHECKING:
    from outbox_core.store import Claim, KeyId, Leased, Place, Store
    from outbox_core.table import TableName

_MOST_TIMEOUTS: Final = 3


class Unreadable:
    """Remembers the claim of a single row that failed over its content. That row is leased without it, looked at alone,
    and blamed only if it cannot be read then, either: it may be another one by now."""

    def __init__(self, table: TableName, store: Store) -> None:
        self._table = table
        self._store = store
        self._timeouts = 0
        self._slow: Place | None = None
        """Where the claim began that was not answered in time."""
        self._failed: tuple[Claim, Mapping[KeyId, int]] | None = None

    @property
    def suspected(self) -> bool:
        """Whether there is a row to be looked for."""
        return self._failed is not None

    def claimed(self, claim: Claim) -> None:
        """A claim came to its end. One that began behind the row in question says nothing about it."""
        if self._slow is None or claim.since <= self._slow:
            self._timeouts = 0

    def failed(self, claim: Claim, keys: Mapping[KeyId, int], error: StorageError) -> None:
        """A claim did not. The database was seen to answer right before it, so it may be what it had to read."""
        if claim.limit > 1 or claim.blind:
            return
        if isinstance(error, StorageTimeout):
            self._timeouts += 1
            self._slow = claim.since
        if isinstance(error, ContentUnreadable) or self._timeouts >= _MOST_TIMEOUTS:
            self._failed = (claim, keys)

    def taken(self, term: int | None) -> tuple[Claim, Mapping[KeyId, int]]:
        """The claim that leases the row without its content, once."""
        if self._failed is None:
            raise AssertionError("no row is suspected")
        (claim, keys), self._failed = self._failed, None
        self._timeouts = 0
        return replace(claim, token=uuid7(), term=term, floors={}, blind=True, look=True), keys

    async def examine(self, leased: Leased) -> None:
        """Look at a row that was leased without its content: it says what is wrong with it. Raises StorageError when
        nothing is, and the lease is to be undone."""
        for row in leased.rows():
            try:
                await self._store.read(self._table, row.id)
            except ContentUnreadable as error:
                row.unreadable = error
            except StorageTimeout as error:
                await self._store.tick(self._table)  # raises when nothing is answered
                row.unreadable = error
            else:
                raise StorageUnavailable("a row was leased without its content, which can be read")
