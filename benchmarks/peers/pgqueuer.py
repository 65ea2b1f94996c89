"""pgqueuer: a queue manager on a pool, its handler a function of the job."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import AsyncpgPoolDriver, Job, Queries, QueueManager

from benchmarks.peers.child import Handler, main, pool_options


class Pgqueuer:
    def __init__(self, pool: asyncpg.Pool, schema: str, settings: dict[str, Any]) -> None:
        self._pool, self._schema, self._settings = pool, schema, settings
        self._queries = Queries(AsyncpgPoolDriver(pool))

    async def install(self) -> None:
        await self._pool.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE")
        await self._pool.execute(f"CREATE SCHEMA {self._schema}")
        await self._queries.install()

    async def add(self, payloads: list[dict[str, Any]], /) -> None:
        count = len(payloads)
        bodies = [json.dumps(payload).encode() for payload in payloads]
        await self._queries.enqueue(["order"] * count, bodies, [0] * count)

    async def settle(self) -> None:
        await self._pool.execute("VACUUM (ANALYZE) pgqueuer")
        await self._pool.execute("CHECKPOINT")

    async def work(self, handle: Handler, /) -> None:
        manager = QueueManager(self._queries)

        @manager.entrypoint("order")
        async def order(job: Job) -> None:
            handle(job)

        await manager.run(
            dequeue_timeout=timedelta(seconds=1),
            batch_size=self._settings["batch_size"],
            log_aggregation_interval=timedelta(0),
        )

    def payload(self, job: Job, /) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(job.payload or b"")
        return parsed

    async def left(self) -> int:
        count: int = await self._pool.fetchval("SELECT count(*) FROM pgqueuer")
        return count


@asynccontextmanager
async def opened(order: dict[str, Any]) -> AsyncIterator[Pgqueuer]:
    async with asyncpg.create_pool(**pool_options(order)) as pool:
        yield Pgqueuer(pool, order["schema"], order["settings"])


if __name__ == "__main__":
    sys.exit(main(opened))
