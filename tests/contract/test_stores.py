"""The in-memory store and PostgreSQL, directly and behind a transaction pooler, keep the contract of stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import schema
from outbox_core.stores.memory import MemoryStore, MemoryTransaction
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from outbox_core.testing.contracts.store import AdminStoreContract, Database, StoreContract
from outbox_core.testing.contracts.storing.scene import another
from tests.services.own_loop import run_async
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import PostgresServer

TAKEOVER = 1.0


class MemoryDatabase(Database):
    table = TableName("shop", "orders_outbox")
    takeover = TAKEOVER

    def __init__(self) -> None:
        self._store = MemoryStore(takeover=TAKEOVER)

    def make(self) -> MemoryStore:
        return self._store.connect()

    def transaction(self) -> AbstractAsyncContextManager[MemoryTransaction]:
        return self._store.transaction()

    def unknown_id(self) -> UUID:
        return uuid4()

    async def replay(self, event_id: UUID) -> None:
        row = self._store.table(self.table).rows[event_id]
        row.dead_at, row.attempts, row.available_at = None, 0, datetime.now(UTC)
        row.replays += 1


class PostgresDatabase(Database):
    table = TableName("shop", "orders_outbox")
    takeover = TAKEOVER

    def __init__(self, dsn: str, through: str | None = None) -> None:
        self._dsn = dsn
        self._through = through or dsn

    def make(self) -> PostgresStore:
        return PostgresStore(self._through, takeover=TAKEOVER)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self._dsn)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    def unknown_id(self) -> UUID:
        return uuid4()

    async def replay(self, event_id: UUID) -> None:
        await self.execute(
            "UPDATE shop.orders_outbox SET dead_at = NULL, attempts = 0, replays = replays + 1,"
            " available_at = clock_timestamp() WHERE event_id = $1",
            event_id,
        )

    async def execute(self, statement: str, *parameters: object) -> None:
        async with self.transaction() as connection:
            await connection.execute(statement, *parameters)


@pytest.mark.asyncio
class TestMemory(StoreContract, AdminStoreContract):
    @pytest.fixture
    def database(self) -> MemoryDatabase:
        return MemoryDatabase()


@pytest.fixture(scope="module")
def prepared(postgres_server: PostgresServer) -> Iterator[str]:
    with postgres_server.fresh_database(f"outbox_stores_{postgres_server.port or 'foreign'}") as database:

        async def prepare() -> None:
            connection = await asyncpg.connect(database.dsn)
            try:
                await schema.create(connection, PostgresDatabase.table)
            finally:
                await connection.close()

        run_async(prepare, timeout_s=30)
        yield database.dsn


@pytest.mark.store
@pytest.mark.asyncio
class TestPostgres(StoreContract, AdminStoreContract):
    @pytest_asyncio.fixture
    async def database(self, prepared: str) -> PostgresDatabase:
        database = PostgresDatabase(prepared)
        await database.execute("DELETE FROM shop.orders_outbox")
        await database.execute("DELETE FROM shop.orders_outbox_audit")
        return database


@pytest.mark.store
@pytest.mark.asyncio
class TestPgBouncer(StoreContract):
    @pytest_asyncio.fixture
    async def database(self, prepared: str, pgbouncer: PgBouncer) -> PostgresDatabase:
        database = PostgresDatabase(prepared, pgbouncer.dsn(urlsplit(prepared).path.strip("/")))
        await database.execute("DELETE FROM shop.orders_outbox")
        return database

    async def test_its_capabilities_are_those_behind_a_pooler(self, database: PostgresDatabase) -> None:
        async with another(database) as store:
            found = store.capabilities
        assert (found.pooled, found.session_locks, found.wakeups) == (True, False, "poll")
