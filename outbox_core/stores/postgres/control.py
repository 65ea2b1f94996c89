"""The control session: the leader's locks and the wake-up hints. It only ever returns single small rows."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio
import asyncpg

from outbox_core.errors import InvalidTableName, StorageError, StorageUnavailable
from outbox_core.stores.postgres.advisory import lock_key
from outbox_core.stores.postgres.sessions import BROKEN, Sessions, close, is_sound_after, summary
from outbox_core.stores.postgres.shield import shielded
from outbox_core.stores.postgres.sql import query
from outbox_core.stores.postgres.translation import unelected, without_leader_row
from outbox_core.table import TableName

if TYPE_CHECKING:
    from asyncpg import Connection, Record

CHANNEL: Final = "outbox"
_LOCK_SHARE: Final = 0.9
"""The share of a statement's time that it may wait for another session's lock: the session survives the end of that
wait, but not the end of the statement's time."""
_logger: Final = logging.getLogger("outbox_core.relay")


class Control:
    """One session for every table of a relay, opened when first needed and again after it was lost.

    The server ends it when it has been idle for most of ``takeover``, so that a frozen process does not keep its locks.
    """

    def __init__(self, sessions: Sessions, *, timeout: float, takeover: float) -> None:
        self._sessions = sessions
        self._timeout = timeout
        self._idle_limit = takeover * 0.75
        self._lock = anyio.Lock()
        self._connection: Connection | None = None
        self.opened = 0
        """The number of sessions so far: the locks of one are not those of the next."""
        self._tables: frozenset[TableName] = frozenset()
        self._callback: Callable[[TableName | None], None] | None = None
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    def listen(self, tables: Collection[TableName], callback: Callable[[TableName | None], None]) -> None:
        self._tables, self._callback = frozenset(tables), callback

    async def fetch(
        self, statement: str, *parameters: object, table: TableName | None = None
    ) -> list[Record]:
        """Run one statement on the control session, one of an election if it is about a ``table``."""
        return await shielded(self._fetch(statement, parameters, table))

    async def try_lock(self, table: TableName) -> bool:
        """Take the table's session lock, or find that this very session holds it already."""
        rows = await self.fetch("SELECT pg_try_advisory_lock($1)", lock_key(f"outbox:{table}"))
        locked: bool = rows[0][0]
        return locked

    async def unlock(self, table: TableName) -> None:
        await self.fetch("SELECT pg_advisory_unlock($1)", lock_key(f"outbox:{table}"))

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with anyio.CancelScope(shield=True):
                await close(connection)

    def abort(self) -> None:
        self._drop()

    async def _fetch(
        self, statement: str, parameters: Sequence[object], table: TableName | None
    ) -> list[Record]:
        async with self._lock:
            try:
                connection = await self._open()
                return await connection.fetch(statement, *parameters, timeout=self._timeout)
            except BaseException as error:
                # An error about one table is no reason to lose the locks of the others.
                if not (isinstance(error, asyncpg.PostgresError) and is_sound_after(error)):
                    self._drop()
                if isinstance(error, asyncpg.PostgresError) and table is not None:
                    raise unelected(error, table) from error
                if isinstance(error, BROKEN):
                    raise StorageUnavailable(f"the control session failed: {summary(error)}") from error
                raise

    async def _open(self) -> Connection:
        if self._connection is not None and self.is_open:
            return self._connection
        connection = await self._sessions.dedicated(
            idle_session_timeout=str(round(self._idle_limit * 1000)),
            lock_timeout=str(round(self._timeout * _LOCK_SHARE * 1000)),
        )
        try:
            if self._callback is not None and not self._sessions.pooled:
                await connection.add_listener(CHANNEL, self._heard)
                self._callback(None)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self.opened += 1
        return connection

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        if self._callback is None or not isinstance(payload, str):
            return
        try:
            table = TableName.parse(payload)
        except InvalidTableName:
            return
        if table in self._tables:
            self._callback(table)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


class PostgresElection:
    """Leadership of one table: a session lock and a row with the term; behind a pooler the row's heartbeat alone."""

    def __init__(self, table: TableName, control: Control, sessions: Sessions, takeover: float) -> None:
        self._table = table
        self._control = control
        self._sessions = sessions
        self._takeover = takeover
        self._locked_in = 0
        """The control session that the lock was taken in."""

    async def campaign(self) -> int | None:
        if self._sessions.pooled:
            silent, has_row = (await self._ask("silence", self._takeover))[0]
            if not has_row:
                raise without_leader_row(self._table)
            if silent:
                await self._end_stuck_claims()
            rows = await self._ask("campaign", self._control.holder, self._takeover)
        elif self._is_locked or await self._control.try_lock(self._table):
            self._locked_in = self._control.opened
            async with self._unlocked_unless_led():
                await self._end_stuck_claims()
                rows = await self._ask("campaign", self._control.holder, None)
                if not rows:  # no other candidate refuses the owner of the lock
                    raise without_leader_row(self._table)
        else:
            return None
        return rows[0][0] if rows else None

    @property
    def _is_locked(self) -> bool:
        return self._control.is_open and self._control.opened == self._locked_in

    async def heartbeat(self, term: int) -> bool:
        async with self._unlocked_unless_led():
            alive = bool(await self._ask("heartbeat", term))
            if not alive and not (await self._ask("silence", self._takeover))[0][1]:
                raise without_leader_row(self._table)
        if alive and not self._sessions.pooled and not self._is_locked:
            raise StorageUnavailable("the session that held the leader's lock was lost")
        return alive

    async def resign(self, term: int) -> None:
        async with self._unlocked_unless_led():
            ended = await self._ask("resign", term)
        if ended:
            await self._unlock()

    @asynccontextmanager
    async def _unlocked_unless_led(self) -> AsyncGenerator[None]:
        """Unlock on an error, so that another relay can lead: the session may live on, for other tables' sake."""
        try:
            yield
        except StorageError:
            with suppress(StorageError):
                await self._unlock()
            raise

    async def _unlock(self) -> None:
        """Release the lock, if the session that has it is still open."""
        if self._is_locked:
            self._locked_in = 0
            await self._control.unlock(self._table)

    async def _end_stuck_claims(self) -> None:
        """End claims of a frozen leader: they lock the leader's row, so no other relay could lead."""
        for row in await self._ask("end_stuck_sessions", self._table.quoted, self._takeover / 2):
            _logger.warning(
                "%s: ended the session of a relay that was frozen in a claim, server process %d",
                self._table, row[0],
            )  # fmt: skip

    async def _ask(self, statement: str, *parameters: object) -> list[Record]:
        if not self._sessions.pooled:
            return await self._control.fetch(query(statement, self._table), *parameters, table=self._table)
        try:
            return await self._sessions.fetch(query(statement, self._table), *parameters, patient=True)
        except asyncpg.PostgresError as error:
            raise unelected(error, self._table) from error
