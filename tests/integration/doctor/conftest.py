"""A table to be examined."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest_asyncio

from outbox_core import schema
from tests.integration.doctor.ward import TABLE, Ward
from tests.services.postgres import Database


@pytest_asyncio.fixture
async def ward(database: Database) -> AsyncIterator[Ward]:
    connection = await asyncpg.connect(database.dsn)
    try:
        await schema.create(connection, TABLE)
        yield Ward(database.dsn, connection)
    finally:
        await connection.close()
