"""The relay's own database sessions: few, never shared between tasks at one time, every wait bounded.

A small pool of its own instead of the driver's, because a relay needs three things at once: no reset round trip between
its one-statement transactions, a release that cannot hang, and every call ended at once when the relay must go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import anyio
import asyncpg

from outbox_core.errors import ConfigError, StorageTimeout, StorageUnavailable
from outbox_core.stores.postgres.connecting import (
    address,
    connect_arguments,
    flaw,
    may_quote,
    refusal,
)
from outbox_core.stores.postgres.hosts import Hosts
from outbox_core.stores.postgres.shield import shielded

if TYPE_CHECKING:
    from asyncpg import Connection, Record

PLANNER: Final[dict[str, str]] = {
    # A statement planned while the queue is empty would get a sequential scan or a sort, and keep it when it is full.
    "enable_seqscan": "off",
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
"""Settings of every session; behind a transaction pooler, of every transaction."""

PLANNED_ONCE: Final[dict[str, str]] = {"plan_cache_mode": "force_generic_plan"}
"""Settings of a relay's sessions. With `PLANNER` the plans of its statements do not depend on the values, and planning
each call costs more than a claim that finds nothing. Plans of searches among dead letters do depend on them."""

BROKEN: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    # Raised when the server ended the session while this process stood still: its last message follows a statement.
    asyncpg.InternalClientError,
)
"""Errors that the driver raises when a session, or a statement on it, fails."""

_OF_THE_SERVER: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""Errors of a server that shuts down, or is the wrong one: the other sessions to it are of no use either."""
_LOCK_SHARE: Final = 1 / 10
"""The share of a statement's time that it may wait for another session's lock: other tables need the session."""
_CLOSE_SECONDS: Final = 2.0
_NETWORK_SLACK_SECONDS: Final = 1.0


class Sessions:
    """At most ``size`` sessions to one database, opened when needed and dropped on any doubt."""

    def __init__(
        self,
        dsn: str,
        *,
        name: str,
        size: int,
        timeout: float,
        connect: Mapping[str, Any] | None = None,
    ) -> None:
        self._dsn = dsn
        self._name = name
        self._timeout = timeout
        milliseconds = str(round(timeout * 1000))
        self._bounds = {
            "statement_timeout": milliseconds,
            "lock_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
        }
        self._hasty = {"lock_timeout": str(round(timeout * _LOCK_SHARE * 1000))}
        self._connect = session_arguments(connect, name)
        # No pause where a session is free: a relay sends its next claim before it turns to the rows of the last.
        self._permits = anyio.Semaphore(size, fast_acquire=True)
        self._idle: list[Connection] = []
        self._open_ones: WeakSet[Connection] = WeakSet()
        self._connecting: set[anyio.CancelScope] = set()
        self._closed = False
        self._hosts = Hosts(dsn, self._connect)
        self.where = f" at {address(dsn, self._connect)}"
        """The address as errors show it, until the relay has started."""
        self._started = False
        self._planner = PLANNER
        self.pooled = False
        """True behind a transaction pooler; known after `detect`."""

    def plan_once(self) -> None:
        """Open sessions from now on with a relay's settings."""
        self._planner = PLANNER | PLANNED_ONCE

    def started(self) -> None:
        """Leave the address out of errors from now on: the operator knows it, and others may read them. And take every
        failure to connect for a passing one, because an earlier connection succeeded."""
        self.where = ""
        self._started = True

    async def detect(self) -> None:
        """Connect once, and find out if the session belongs to a transaction pooler."""
        await shielded(self._detect())

    async def fetch(self, statement: str, *parameters: object, patient: bool = False) -> list[Record]:
        """Run one statement in a transaction of its own.

        Cancelling the caller does not interrupt it: it ends by itself, within the timeout. It waits for another
        session's lock for a tenth of that. Behind a pooler, where elections run this way, a ``patient`` one waits for
        all of it.
        """
        return await shielded(self._fetch(statement, parameters, patient))

    async def dedicated(self, **settings: str) -> Connection:
        """A session outside the pool, for what belongs to a session: locks and notifications. The caller ends it."""
        return await shielded(self._open(**settings))

    async def close(self) -> None:
        """End idle sessions politely, all others at once."""
        self._closed = True
        idle, self._idle = self._idle, []
        try:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as tasks:
                    for connection in idle:
                        tasks.start_soon(close, connection)
        finally:
            # No scope shields from a cancellation of the tasks themselves, as at the end of an event loop.
            self.abort()

    def abort(self) -> None:
        """Cut every session, dedicated ones too; calls in progress end with an error."""
        self._closed = True
        for scope in self._connecting:
            scope.cancel()
        for connection in list(self._open_ones):
            connection.terminate()
        self._idle.clear()

    async def _detect(self) -> None:
        connection = await self._connect_once(statement_cache_size=0)
        try:
            async with connection.transaction():
                pid: int = await connection.fetchval("SELECT pg_backend_pid()")
            self.pooled = pid != connection.get_server_pid()
        except BROKEN as error:
            raise StorageUnavailable(f"the database did not answer: {summary(error)}") from error
        finally:
            await close(connection)

    async def _fetch(self, statement: str, parameters: Sequence[object], patient: bool) -> list[Record]:
        with anyio.move_on_after(self._timeout) as waiting:
            await self._permits.acquire()
        if waiting.cancelled_caught:
            raise StorageTimeout(f"no database session was free within {self._timeout:g} s")
        try:
            return await self._run(statement, parameters, patient)
        finally:
            self._permits.release()

    async def _run(self, statement: str, parameters: Sequence[object], patient: bool) -> list[Record]:
        connection = self._take() or await self._open(**self._hasty)
        sound = False
        try:
            rows = await self._execute(connection, statement, parameters, patient)
            sound = True
        except asyncpg.PostgresError as error:
            sound = is_sound_after(error)
            if isinstance(error, _OF_THE_SERVER):
                self._end_idle()
            raise
        except TimeoutError as error:
            self._end_idle()
            raise StorageTimeout(f"a statement was not answered within {self._timeout:g} s") from error
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            self._end_idle()
            raise StorageUnavailable(f"the database connection was lost: {type(error).__name__}") from error
        finally:
            if sound and not connection.is_closed() and not self._closed:
                self._idle.append(connection)
            else:
                connection.terminate()
        return rows

    async def _execute(
        self, connection: Connection, statement: str, parameters: Sequence[object], patient: bool
    ) -> list[Record]:
        if not self.pooled:
            return await connection.fetch(statement, *parameters, timeout=self._timeout)
        async with connection.transaction(isolation="read_committed"):
            # A process that freezes here must not keep its row locks: no other relay can end a pooler's session.
            bounds = self._bounds if patient else self._bounds | self._hasty
            await connection.execute(_set_all("SET LOCAL", self._planner | bounds), timeout=self._timeout)
            return await connection.fetch(statement, *parameters, timeout=self._timeout)

    def _end_idle(self) -> None:
        """End idle sessions: their server is gone, and each would show that only after its own timeout."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def _open(self, **settings: str) -> Connection:
        if self.pooled:
            return await self._connect_once(statement_cache_size=0)
        connection = await self._connect_once()
        own = {
            "default_transaction_isolation": "read committed",
            "tcp_user_timeout": str(round(self._timeout * 1000)),
        }
        try:
            await connection.execute(_set_all("SET", self._planner | self._bounds | own | settings))
        except BaseException as error:
            connection.terminate()
            if isinstance(error, BROKEN):
                raise StorageUnavailable(f"cannot prepare a database session: {summary(error)}") from error
            raise
        return connection

    async def _connect_once(self, **more: Any) -> Connection:
        if self._closed:
            raise StorageUnavailable("the relay's database sessions are closed")
        wrong = flaw(self._dsn) if self._dsn else None
        if wrong is not None:
            raise ConfigError(f"the database URL cannot be used: {wrong}")
        arguments = self._hosts.arguments() | self._connect | more
        asked_first = self._hosts.first
        server = {**arguments.pop("server_settings", {}), "application_name": self._name[:63]}
        connection: Connection | None = None
        try:
            with anyio.move_on_after(self._timeout + _NETWORK_SLACK_SECONDS) as scope:
                self._connecting.add(scope)
                try:
                    connection = await asyncpg.connect(
                        self._dsn,
                        timeout=self._timeout,
                        command_timeout=self._timeout,
                        server_settings=server,
                        **arguments,
                    )
                finally:
                    self._connecting.discard(scope)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise StorageUnavailable(
                f"cannot connect to the database{self.where}: what gives the password ended with CancelledError:"
                " what it waited for was cancelled, and not by the relay"
            ) from error
        except Exception as error:
            # Broad, because an application's function that gives the password may raise anything, and because a relay
            # that is running must not end for it, or for a certificate's file that is being replaced.
            if not self._started and not isinstance(error, (*BROKEN, ValueError, OverflowError)):
                raise
            if isinstance(error, TimeoutError):
                self._hosts.was_silent(asked_first)
            refused = refusal(error, self.where, connected_before=self._started)
            raise refused from (None if may_quote(error) else error)
        if connection is None:
            self._hosts.was_silent(asked_first)
            raise StorageUnavailable(
                f"cannot connect to the database{self.where}: no answer, or the relay is going"
            )
        self._open_ones.add(connection)
        return connection


def session_arguments(given: object, name: str) -> dict[str, Any]:
    """Arguments of ``asyncpg.connect`` for sessions of that name. Raises `ConfigError` if another name is given."""
    arguments = connect_arguments(given)
    if "application_name" in arguments.get("server_settings", {}):
        raise ConfigError(
            "connect cannot have an application_name among its server_settings: a relay's sessions are found by"
            f" theirs, {name!r}, when one of them is frozen; leave it out"
        )
    return arguments


async def close(connection: Connection) -> None:
    """End a session politely if it answers, at once if it does not."""
    try:
        with anyio.move_on_after(_CLOSE_SECONDS + _NETWORK_SLACK_SECONDS):
            await connection.close(timeout=_CLOSE_SECONDS)
    except BROKEN:
        pass
    finally:
        connection.terminate()


def is_sound_after(error: asyncpg.PostgresError) -> bool:
    """True if the session is usable after the error: it was about a statement, not about session or server."""
    return not isinstance(error, (*_OF_THE_SERVER, asyncpg.OperatorInterventionError))


def summary(error: BaseException) -> str:
    """Type and SQLSTATE of a driver's error. Its text may quote data or the connection string."""
    state = getattr(error, "sqlstate", None)
    return f"{type(error).__name__} ({state})" if state else type(error).__name__


def _set_all(verb: str, settings: Mapping[str, str]) -> str:
    return "; ".join(f"{verb} {name} = '{value}'" for name, value in settings.items())
