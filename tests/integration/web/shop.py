"""A shop with orders and an outbox in PostgreSQL, and servers in this process for its applications."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import uvicorn
from aiohttp import web
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_core import Message, Outbox, Relay
from outbox_core.testing import RecordingDispatcher
from tests.kit.settings import QUICK_WEB
from tests.kit.waiting import until

TABLE = "shop.orders_outbox"
TOPIC = "shop.order.placed.v1"
TABLES = """
CREATE TABLE orders (
    id integer,
    -- Checked at commit, so that a transaction can fail there.
    CONSTRAINT one_of_each UNIQUE (id) DEFERRABLE INITIALLY DEFERRED
)
"""


@dataclass(frozen=True, slots=True)
class Shop:
    dsn: str
    connection: asyncpg.Connection
    outbox: Outbox

    @property
    def sqlalchemy_url(self) -> str:
        return self.dsn.replace("postgresql://", "postgresql+asyncpg://", 1)

    def relay(self, dispatcher: RecordingDispatcher, **settings: Any) -> Relay:
        return Relay(self.dsn, table=TABLE, dispatcher=dispatcher, cleaner=None, **(QUICK_WEB | settings))

    async def orders(self) -> list[int]:
        return [row["id"] for row in await self.connection.fetch("SELECT id FROM orders ORDER BY id")]

    async def messages(self) -> list[int]:
        rows = await self.connection.fetch(f"SELECT payload->>'order' AS number FROM {TABLE} ORDER BY 1")  # noqa: S608
        return sorted(int(row["number"]) for row in rows)

    async def states(self) -> dict[str, int]:
        rows = await self.connection.fetch(
            f"SELECT CASE WHEN published_at IS NULL THEN 'pending' ELSE 'published' END AS state FROM {TABLE}"  # noqa: S608
        )
        return dict(Counter(row["state"] for row in rows))


def placed(number: int) -> Message:
    return Message(TOPIC, {"order": number}, key=f"order-{number % 5}")


async def insert(session: AsyncSession, number: int) -> None:
    await session.execute(text("INSERT INTO orders VALUES (:number)"), {"number": number})


class NotServed(Exception):
    """The application did not start."""


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an ASGI application that uvicorn serves on a real socket, with its lifespan."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None, ws="none"))

        async def serve() -> None:
            try:
                await server.serve(sockets=[listening])
            except SystemExit:
                raise NotServed from None

        serving = asyncio.create_task(serve())
        port = listening.getsockname()[1]
        try:
            await until(lambda: server.started or serving.done())
            if server.started:
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20.0) as client:
                    yield client
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def served_by_aiohttp(app: web.Application) -> AsyncIterator[httpx.AsyncClient]:
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20.0) as client:
            yield client
    finally:
        await runner.cleanup()
