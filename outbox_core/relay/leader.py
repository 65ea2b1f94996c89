"""Leading a table: one relay claims, the others stand by."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import StorageError
from outbox_core.observer import LeaderGained, LeaderLost, Reconnecting
from outbox_core.relay.settings import HEARTBEATS

if TYPE_CHECKING:
    from outbox_core.relay.shared import Shared
    from outbox_core.table import TableName

_logger: Final = logging.getLogger("outbox_core.relay")


class Leader:
    """Campaigns until it leads, heartbeats while it does, campaigns again when the term is over.

    It only says when to try: that a deposed leader claims nothing is the claim's own doing, which checks the term.
    """

    def __init__(self, table: TableName, shared: Shared) -> None:
        self._table = table
        self._election = shared.store.election(table)
        self._interval = shared.settings.takeover / HEARTBEATS
        self._observers = shared.observers
        self._shutdown = shared.shutdown
        self._changed = anyio.Event()
        self.refused = False
        """True when the last campaign found another leader."""
        self.failures = 0
        """How many campaigns in a row the database did not let end, the last of them for this:"""
        self.failure: StorageError | None = None
        self.term: int | None = None
        """The present term, None while standing by."""

    async def run(self) -> None:
        """Go on until cancelled; then resign, so that a stand-by need not wait."""
        try:
            while True:
                if self.term is None:
                    if not self._shutdown.requested:
                        await self._campaign()
                else:
                    await self._heartbeat(self.term)
                await anyio.sleep(self._interval)
        finally:
            await self._resign()

    async def changed(self, at_most: float) -> None:
        """Wait until leadership was gained or lost, at most ``at_most`` seconds."""
        with anyio.move_on_after(at_most):
            await self._changed.wait()

    async def _campaign(self) -> None:
        try:
            term = await self._election.campaign()
        except StorageError as error:
            self.failures, self.failure = self.failures + 1, error
            self._observers.notify(Reconnecting(self._table, str(error), self._interval))
            return
        self.failures = 0
        if term is None and not self.refused:
            _logger.info(
                "%s: standing by: another relay leads", self._table, extra={"outbox_table": str(self._table)}
            )
        self.refused = term is None
        if term is not None:
            self._set(term)
            self._observers.notify(LeaderGained(self._table, term))

    async def _heartbeat(self, term: int) -> None:
        try:
            alive = await self._election.heartbeat(term)
            reason = "another relay began a newer term"
        except StorageError as error:
            alive, reason = False, str(error)
        if not alive:
            self._set(None)
            self._observers.notify(LeaderLost(self._table, term, reason))

    async def _resign(self) -> None:
        term = self.term
        if term is None:
            return
        self._set(None)
        reason = "the relay stopped"
        with anyio.CancelScope(shield=True):
            try:
                await self._election.resign(term)
            except StorageError as error:
                reason = f"the relay stopped; resigning failed: {error}"
        self._observers.notify(LeaderLost(self._table, term, reason))

    def _set(self, term: int | None) -> None:
        self.term = term
        self._changed.set()
        self._changed = anyio.Event()
