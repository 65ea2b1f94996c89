"""One cast for the whole folder, its table emptied before each test."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.integration.roles.cast import Cast, dismiss, empty, gather
from tests.services.own_loop import run_async
from tests.services.postgres import PostgresServer


@pytest.fixture(scope="session")
def gathered(postgres_server: PostgresServer) -> Iterator[Cast]:
    prefix = f"roles_{secrets.token_hex(4)}"
    with postgres_server.fresh_database(f"outbox_{prefix}") as database:
        cast = Cast(database.dsn, prefix)
        try:
            run_async(lambda: gather(cast), timeout_s=40)
            yield cast
        finally:
            run_async(lambda: dismiss(cast), timeout_s=40)


@pytest_asyncio.fixture
async def cast(gathered: Cast) -> AsyncIterator[Cast]:
    await empty(gathered)
    yield gathered
