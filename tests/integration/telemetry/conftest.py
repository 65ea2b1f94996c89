"""A bench with an empty table."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.relay.bench import Bench, prepared
from tests.services.postgres import Database


@pytest_asyncio.fixture
async def bench(database: Database) -> AsyncIterator[Bench]:
    async with prepared(database) as bench:
        yield bench
