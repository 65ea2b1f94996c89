"""Leadership of a table in memory: a session's lock, and a row with the term."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import anyio.lowlevel

if TYPE_CHECKING:
    from outbox_core.stores.memory.database import MemoryDatabase
    from outbox_core.table import TableName


class MemoryElection:
    """A leader is replaced when its session has ended or it has been silent for ``takeover``."""

    def __init__(
        self, table: TableName, database: MemoryDatabase, takeover: timedelta, session: Callable[[], object]
    ) -> None:
        self._database = database
        self._leadership = database.leadership(table)
        self._takeover = takeover
        self._session = session

    async def campaign(self) -> int | None:
        await anyio.lowlevel.checkpoint()
        session, row, now = self._session(), self._leadership, self._database.clock()
        silent = row.heartbeat_at is None or row.heartbeat_at < now - self._takeover
        if row.session is not None and row.session is not session and not silent:
            return None
        row.session, row.heartbeat_at = session, now
        row.term += 1
        return row.term

    async def heartbeat(self, term: int) -> bool:
        await anyio.lowlevel.checkpoint()
        session, row = self._session(), self._leadership
        if row.term != term:
            return False
        row.session, row.heartbeat_at = session, self._database.clock()
        return True

    async def resign(self, term: int) -> None:
        await anyio.lowlevel.checkpoint()
        self._session()
        if self._leadership.term == term:
            self._leadership.session = self._leadership.heartbeat_at = None
