"""A database that cannot hold every character records what it is told all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Dead, LeaseLost
from tests.integration.relay.bench import Bench, prepared
from tests.services.postgres import Database

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def latin(database: Database) -> AsyncIterator[Bench]:
    """A bench on a database of Latin letters alone."""
    name = f"{database.name}_latin1"
    admin = await asyncpg.connect(database.dsn)
    try:
        await admin.execute(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
        async with prepared(Database(database.server.dsn(name), name, database.server)) as bench:
            yield bench
    finally:
        await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await admin.close()


async def test_an_error_that_the_database_cannot_hold_is_recorded_spelt_out(latin: Bench) -> None:
    """And the one beside it as it is."""

    async def refuse(message: DispatchedMessage) -> None:
        raise ValueError("kaputt → 中文" if message.json() == 1 else "allé")

    await latin.enqueue(1, 2)
    async with latin.relay(refuse, max_attempts=2):
        assert await latin.settled(5.0) == {"dead": 2}
    rows = await latin.rows()
    assert [row["attempts"] for row in rows] == [2, 2]
    assert [row["last_error"] for row in rows] == [
        "UNKNOWN.VALUEERROR ValueError: kaputt \\u2192 \\u4e2d\\u6587",
        "UNKNOWN.VALUEERROR ValueError: allé",
    ]
    assert sorted(event.error for event in latin.heard.of(Dead)) == sorted(row["last_error"] for row in rows)
    assert latin.heard.of(LeaseLost) == []
