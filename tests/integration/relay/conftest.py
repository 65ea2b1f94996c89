"""A bench and a trial, each on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.integration.relay.bench import Bench, prepared
from tests.integration.relay.trial import Trial
from tests.services.postgres import Database


@pytest_asyncio.fixture
async def trial(database: Database, tmp_path: Path) -> AsyncIterator[Trial]:
    async with Trial.opened(database.dsn, tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture
async def bench(database: Database) -> AsyncIterator[Bench]:
    async with prepared(database) as made:
        yield made
