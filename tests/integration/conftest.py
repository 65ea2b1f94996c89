"""A table in a database of the test's own, for those who look after messages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.yard import Yard, opened
from tests.services.postgres import Database


@pytest_asyncio.fixture
async def yard(database: Database) -> AsyncIterator[Yard]:
    async with opened(database) as yard:
        yield yard
