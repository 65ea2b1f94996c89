"""An empty shop, in a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import Outbox, schema
from outbox_core.testing import RecordingDispatcher
from tests.integration.web.shop import TABLE, TABLES, Shop
from tests.services.postgres import Database


@pytest_asyncio.fixture
async def shop(database: Database) -> AsyncIterator[Shop]:
    connection = await asyncpg.connect(database.dsn)
    try:
        await connection.execute("CREATE SCHEMA shop")
        await schema.create(connection, TABLE)
        await connection.execute(TABLES)
        yield Shop(database.dsn, connection, Outbox(TABLE))
    finally:
        await connection.close()


@pytest.fixture
def dispatcher() -> RecordingDispatcher:
    return RecordingDispatcher()
