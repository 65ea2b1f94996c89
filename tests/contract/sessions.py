"""Where the contract suite gets its transactions from: one class per kind of ``tx``, all alike from outside."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from outbox_core.record import State
from outbox_core.stores.memory import MemoryStore, MemoryTransaction
from outbox_core.table import TableName

TABLE = TableName("shop", "orders_outbox")
T = TypeVar("T")

_RELAYED = {
    State.PENDING: "UPDATE shop.orders_outbox SET locked_at = NULL, lock_token = NULL WHERE event_id = $1",
    State.IN_FLIGHT: "UPDATE shop.orders_outbox SET locked_at = now(), lock_token = gen_random_uuid()"
    " WHERE event_id = $1",
    State.PUBLISHED: "UPDATE shop.orders_outbox SET published_at = now() WHERE event_id = $1",
    State.DEAD: "UPDATE shop.orders_outbox SET dead_at = now(), last_error = 'PROVIDER.PERMANENT: refused'"
    " WHERE event_id = $1",
}
_SOMEBODY_WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


class Interrupted(Exception):
    """What a test raises to have its transaction or savepoint rolled back."""


@asynccontextmanager
async def interrupted() -> AsyncIterator[None]:
    """Around a block that must end with `Interrupted`."""
    with pytest.raises(Interrupted):
        yield


class Sessions(ABC):
    """Transactions of one kind, on connections of their own, so that several can be open at once."""

    transaction_start_time = True
    """``created_at`` is when the transaction began. Otherwise it is only known not to be after ``available_at``."""

    @abstractmethod
    def begin(self) -> AbstractAsyncContextManager[Any]:
        """A ``tx``; committed at the end of the block, rolled back when it raises."""

    @abstractmethod
    def savepoint(self, tx: Any) -> AbstractAsyncContextManager[Any]:
        """A savepoint in ``tx``; rolled back when the block raises."""

    @abstractmethod
    def outside(self) -> AbstractAsyncContextManager[Any]:
        """An object of the same kind on which a write would be committed by itself."""

    @abstractmethod
    async def now(self) -> datetime:
        """The store's clock."""

    @abstractmethod
    async def move(self, event_id: UUID, state: State) -> None:
        """Put a committed message into a state, as a relay would."""

    @abstractmethod
    async def until_blocked(self, task: asyncio.Task[Any]) -> None:
        """Wait until the task waits for another transaction."""

    @property
    def observer(self) -> Sessions:
        """Sessions that may read everything."""
        return self

    def must_retry(self, error: Exception) -> bool:
        """Whether the transaction failed serialisation, so that its owner is asked to run it again."""
        return False

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """One transaction, repeated while it fails serialisation, as every caller at those levels must."""
        for _ in range(10):
            try:
                async with self.begin() as tx:
                    return await work(tx)
            except Exception as error:
                if not self.must_retry(error):
                    raise
        raise AssertionError("the transaction failed serialisation 10 times")


class MemorySessions(Sessions):
    """The in-memory double."""

    def __init__(self) -> None:
        self.store = MemoryStore()

    def begin(self) -> AbstractAsyncContextManager[MemoryTransaction]:
        return self.store.transaction()

    def savepoint(self, tx: MemoryTransaction) -> AbstractAsyncContextManager[None]:
        return tx.savepoint()

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[MemoryTransaction]:
        async with self.store.transaction() as tx:
            pass
        yield tx

    async def now(self) -> datetime:
        return datetime.now(UTC)

    async def move(self, event_id: UUID, state: State) -> None:
        row, now = self.store.table(TABLE).rows[event_id], datetime.now(UTC)
        row.published_at = now if state is State.PUBLISHED else None
        row.dead_at = now if state is State.DEAD else None
        row.last_error = "PROVIDER.PERMANENT: refused" if state is State.DEAD else None
        row.lock_token = uuid4() if state is State.IN_FLIGHT else None

    async def until_blocked(self, task: asyncio.Task[Any]) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()


@dataclass
class PostgresSessions(Sessions):
    """What is common to every driver. ``settings`` are session settings, such as a search_path or a role."""

    dsn: str
    admin: AsyncpgSessions | None = None
    isolation: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    async def now(self) -> datetime:
        now: datetime = await self.observer.ask("SELECT clock_timestamp()")
        return now

    async def move(self, event_id: UUID, state: State) -> None:
        await self.observer.ask(_RELAYED[state], event_id)

    async def until_blocked(self, task: asyncio.Task[Any]) -> None:
        deadline = time.monotonic() + 10
        while not await self.observer.ask(_SOMEBODY_WAITS):
            assert not task.done(), "it did not wait"
            assert time.monotonic() < deadline, "it neither waited nor ended"
            await asyncio.sleep(0.002)

    @property
    def observer(self) -> AsyncpgSessions:
        assert self.admin is not None
        return self.admin

    def must_retry(self, error: Exception) -> bool:
        origin = getattr(error, "orig", None) or error
        return getattr(origin, "sqlstate", None) == "40001"

    @abstractmethod
    async def close(self) -> None:
        """Close what was opened and kept for the next transaction."""

    @property
    def options(self) -> str:
        return " ".join(f"-c {name}={value}" for name, value in self.settings.items())


@dataclass
class AsyncpgSessions(PostgresSessions):
    """A connection of its own for each transaction; with ``codecs``, one whose types mean something else."""

    codecs: bool = False
    idle: list[asyncpg.Connection] = field(default_factory=list)

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[Any]:
        connection = self.idle.pop() if self.idle else await self._connect()
        try:
            yield connection
        finally:
            self.idle.append(connection)

    async def _connect(self) -> asyncpg.Connection:
        connection = await asyncpg.connect(self.dsn, server_settings=dict(self.settings))
        if self.codecs:
            await set_foreign_codecs(connection)
        return connection

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        async with self.outside() as connection, connection.transaction(isolation=self.isolation):
            yield connection

    def savepoint(self, tx: Any) -> AbstractAsyncContextManager[Any]:
        transaction: AbstractAsyncContextManager[Any] = tx.transaction()
        return transaction

    @property
    def observer(self) -> AsyncpgSessions:
        return self.admin or self

    async def ask(self, query: str, *parameters: object) -> Any:
        """One value, in a statement that commits by itself."""
        async with self.outside() as connection:
            return await connection.fetchval(query, *parameters)

    async def close(self) -> None:
        for connection in self.idle:
            await connection.close()


@dataclass
class PoolSessions(AsyncpgSessions):
    """Connections acquired from a pool."""

    pool: asyncpg.Pool | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[Any]:
        async with self.opening:  # transactions that begin side by side would open one each
            if self.pool is None:
                self.pool = await asyncpg.create_pool(self.dsn, min_size=1, max_size=4)
        async with self.pool.acquire() as proxy:
            yield proxy

    async def close(self) -> None:
        if self.pool is not None:
            await self.pool.close()


async def set_foreign_codecs(connection: asyncpg.Connection) -> None:
    """What applications do to a connection: JSON as objects, UUIDs as something of their own."""
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await connection.set_type_codec(
        "uuid", encoder=lambda value: value["uuid"], decoder=lambda text: {"uuid": text}, schema="pg_catalog"
    )


@dataclass
class PsycopgSessions(PostgresSessions):
    """psycopg, which begins by itself; with rows as dictionaries, or in pipeline mode."""

    dictionaries: bool = False
    pipeline: bool = False
    idle: list[psycopg.AsyncConnection[Any]] = field(default_factory=list)

    @asynccontextmanager
    async def _connection(self, *, autocommit: bool) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        connection = self.idle.pop() if self.idle else await self._connect()
        try:
            await connection.set_autocommit(autocommit)
            async with AsyncExitStack() as stack:
                if self.pipeline:
                    await stack.enter_async_context(connection.pipeline())
                yield connection
            await connection.commit()
        except BaseException:
            await connection.rollback()
            raise
        finally:
            self.idle.append(connection)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        connection: psycopg.AsyncConnection[Any] = await psycopg.AsyncConnection.connect(
            self.dsn, options=self.options
        )
        if self.dictionaries:
            connection.row_factory = dict_row
        if self.isolation is not None:
            await connection.set_isolation_level(psycopg.IsolationLevel[self.isolation.upper()])
        return connection

    def begin(self) -> AbstractAsyncContextManager[Any]:
        return self._connection(autocommit=False)

    def outside(self) -> AbstractAsyncContextManager[Any]:
        return self._connection(autocommit=True)

    def savepoint(self, tx: Any) -> AbstractAsyncContextManager[Any]:
        transaction: AbstractAsyncContextManager[Any] = tx.transaction()
        return transaction

    async def close(self) -> None:
        for connection in self.idle:
            await connection.close()


@dataclass
class SqlalchemySessions(PostgresSessions):
    """SQLAlchemy on either driver, as a session or as a connection."""

    driver: str = "asyncpg"
    session: bool = False
    engine: AsyncEngine | None = None

    @asynccontextmanager
    async def _open(self, isolation: str | None) -> AsyncIterator[Any]:
        if self.engine is None:
            self.engine = self._create_engine()
        options = {} if isolation is None else {"isolation_level": isolation}
        engine = self.engine.execution_options(**options)
        if self.session:
            async with AsyncSession(engine) as session, session.begin():
                yield session
        else:
            async with engine.begin() as connection:
                yield connection

    def _create_engine(self) -> AsyncEngine:
        url = make_url(self.dsn).set(drivername=f"postgresql+{self.driver}")
        arguments: dict[str, Any] = (
            {"server_settings": dict(self.settings)}
            if self.driver == "asyncpg"
            else {"options": self.options}
        )
        return create_async_engine(url, connect_args=arguments)

    def begin(self) -> AbstractAsyncContextManager[Any]:
        return self._open(None if self.isolation is None else self.isolation.replace("_", " ").upper())

    def outside(self) -> AbstractAsyncContextManager[Any]:
        return self._open("AUTOCOMMIT")

    def savepoint(self, tx: Any) -> AbstractAsyncContextManager[Any]:
        nested: AbstractAsyncContextManager[Any] = tx.begin_nested()
        return nested

    async def close(self) -> None:
        if self.engine is not None:
            await self.engine.dispose()
