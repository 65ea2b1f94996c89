"""faststream-outbox: a subscriber of its broker, types not converted, no log of single messages."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.peers.child import Handler, main

CONNECTIONS = 24


class FastStreamOutbox:
    def __init__(self, engine: AsyncEngine, schema: str, settings: dict[str, Any]) -> None:
        self._engine, self._schema, self._settings = engine, schema, settings
        self._metadata = MetaData()
        self._broker = OutboxBroker(
            engine,
            outbox_table=make_outbox_table(self._metadata, "outbox"),
            apply_types=False,
            logger=None,
            log_level=logging.ERROR,
        )

    async def install(self) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(text(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE"))
            await connection.execute(text(f"CREATE SCHEMA {self._schema}"))
            await connection.run_sync(self._metadata.create_all)

    async def add(self, payloads: list[dict[str, Any]], /) -> None:
        async with self._engine.begin() as connection:
            if len(payloads) == 1:
                await self._broker.publish(payloads[0], queue="order", session=connection)
            else:
                await self._broker.publish_batch(*payloads, queue="order", session=connection)

    async def settle(self) -> None:
        async with self._engine.connect() as connection:
            unbound = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await unbound.execute(text("VACUUM (ANALYZE) outbox"))
            await unbound.execute(text("CHECKPOINT"))

    async def work(self, handle: Handler, /) -> None:
        @self._broker.subscriber("order", min_fetch_interval=0.05, max_fetch_interval=1.0, **self._settings)
        async def order(body: dict[str, Any]) -> None:
            handle(body)

        await self._broker.start()
        try:
            for subscriber in self._broker.subscribers:
                for task in subscriber.tasks:
                    await task
        finally:
            await self._broker.stop()

    def payload(self, body: dict[str, Any], /) -> dict[str, Any]:
        return body

    async def left(self) -> int:
        async with self._engine.connect() as connection:
            count: int = (await connection.execute(text("SELECT count(*) FROM outbox"))).scalar_one()
            return count


@asynccontextmanager
async def opened(order: dict[str, Any]) -> AsyncIterator[FastStreamOutbox]:
    engine = create_async_engine(
        order["dsn"].replace("postgresql://", "postgresql+asyncpg://"),
        pool_size=CONNECTIONS,
        connect_args={"server_settings": {"search_path": order["schema"]}},
    )
    try:
        yield FastStreamOutbox(engine, order["schema"], order["settings"])
    finally:
        await engine.dispose()


if __name__ == "__main__":
    sys.exit(main(opened))
