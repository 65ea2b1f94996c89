"""A table that was changed behind the library's back: verifying finds it, and what it prints mends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from outbox_core import schema
from outbox_core.errors import SchemaMismatch

TABLE = "public.orders_outbox"


@asynccontextmanager
async def rolled_back(connection: asyncpg.Connection) -> AsyncIterator[None]:
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


async def assert_found_and_mended(
    connection: asyncpg.Connection, deviation: str, kind: str, name: str
) -> None:
    async with rolled_back(connection):
        await connection.execute(deviation)
        report = await schema.verify(connection, TABLE)
        assert (kind, name) in {(each.kind, each.name) for each in report.errors}, f"{deviation}\n{report}"
        with pytest.raises(SchemaMismatch, match=name.rpartition(".")[2]):
            report.raise_if_different()
        for difference in report.differences:
            # CONCURRENTLY is for tables in use; inside this transaction the same statement works without.
            await connection.execute(difference.mend.replace("CONCURRENTLY ", ""))
        mended = await schema.verify(connection, TABLE)
        assert mended.differences == (), f"{deviation}\n{report}\nafter mending:\n{mended}"
