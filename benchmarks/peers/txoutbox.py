"""txoutbox: its relay on its own PostgreSQL storage, woken by its own trigger."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from txoutbox import OutboxMessage, Relay, RelayConfig
from txoutbox.adapters.postgres import PostgresStorage

from benchmarks.peers.child import Handler, main, pool_options


class Txoutbox:
    def __init__(self, pool: asyncpg.Pool, schema: str, settings: dict[str, Any], *, notify: bool) -> None:
        self._pool, self._schema, self._settings = pool, schema, settings
        self._storage = PostgresStorage(
            pool, schema=schema, strict_ordering=False, notify_channel="txoutbox" if notify else None
        )

    async def install(self) -> None:
        await self._pool.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE")
        await self._pool.execute(f"CREATE SCHEMA {self._schema}")
        await self._storage.create_schema()

    async def add(self, payloads: list[dict[str, Any]], /) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            for payload in payloads:
                await self._storage.insert(connection, "order", payload)

    async def settle(self) -> None:
        await self._pool.execute("VACUUM (ANALYZE) outbox")
        await self._pool.execute("CHECKPOINT")

    async def work(self, handle: Handler, /) -> None:
        async def publish(message: OutboxMessage) -> None:
            handle(message)

        relay = Relay(self._storage, publish, config=RelayConfig(publish_timeout=None, **self._settings))
        if self._storage.notify_channel is None:
            await relay.run()
        else:
            async with await self._storage.listen(relay.wake):
                await relay.run()

    def payload(self, message: OutboxMessage, /) -> dict[str, Any]:
        parsed: dict[str, Any] = message.json()
        return parsed

    async def left(self) -> int:
        count: int = await self._pool.fetchval("SELECT count(*) FROM outbox WHERE status = 'pending'")
        return count


@asynccontextmanager
async def opened(order: dict[str, Any]) -> AsyncIterator[Txoutbox]:
    async with asyncpg.create_pool(**pool_options(order)) as pool:
        yield Txoutbox(pool, order["schema"], order["settings"], notify=order["action"] != "drain")


if __name__ == "__main__":
    sys.exit(main(opened))
