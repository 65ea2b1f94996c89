"""The demonstration's database: one table of orders, one of shipments, one outbox.

It is PostgreSQL on purpose: the demonstration starts the server, and its own tables and statements are that server's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import asyncpg

from outbox_core import schema
from outbox_core.table import TableName

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg import Connection

OUTBOX_TABLE: Final = TableName.parse("orders_outbox")
_TIMEOUT: Final = 10.0


@cache
def query(name: str) -> str:
    """The statement of a file in ``queries/``."""
    return files("outbox_core.demo").joinpath(f"queries/{name}.sql").read_text(encoding="utf-8")


@asynccontextmanager
async def session(url: str) -> AsyncGenerator[Connection]:
    """A session of its own, cut off in the end: whatever was open in it is not worth waiting for."""
    connection = await asyncpg.connect(
        url, timeout=_TIMEOUT, command_timeout=_TIMEOUT, server_settings={"application_name": "outbox:demo"}
    )
    try:
        yield connection
    finally:
        connection.terminate()


async def prepare(url: str) -> None:
    """Make the tables."""
    async with session(url) as connection:
        await connection.execute(query("create"))
        await schema.create(connection, OUTBOX_TABLE)


async def event_ids(connection: Connection) -> dict[str, set[UUID]]:
    """The event ids in the database by the place they stand in: committed, published, dead, consumed."""
    found: dict[str, set[UUID]] = {place: set() for place in ("committed", "published", "dead", "consumed")}
    for row in await connection.fetch(query("ledger")):
        found[row["place"]].add(row["event_id"])
    return found
