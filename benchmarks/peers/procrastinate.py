"""procrastinate: a worker with its psycopg connector, jobs deferred by a task of the application."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import procrastinate
import psycopg

from benchmarks.peers.child import Handler, main


class Procrastinate:
    def __init__(self, app: procrastinate.App, order: dict[str, Any]) -> None:
        self._app, self._order = app, order
        self._handle: Handler = lambda _: None

        @app.task(name="order")
        async def task(payload: dict[str, Any]) -> None:
            self._handle(payload)

        self._task = task

    async def install(self) -> None:
        await self._execute(f"DROP SCHEMA IF EXISTS {self._order['schema']} CASCADE")
        await self._execute(f"CREATE SCHEMA {self._order['schema']}")
        await self._app.schema_manager.apply_schema_async()

    async def add(self, payloads: list[dict[str, Any]], /) -> None:
        await self._task.batch_defer_async(*({"payload": payload} for payload in payloads))

    async def settle(self) -> None:
        await self._execute("VACUUM (ANALYZE) procrastinate_jobs")
        await self._execute("CHECKPOINT")

    async def work(self, handle: Handler, /) -> None:
        self._handle = handle
        await self._app.run_worker_async(
            install_signal_handlers=False, shutdown_graceful_timeout=5, **self._order["settings"]
        )

    def payload(self, payload: dict[str, Any], /) -> dict[str, Any]:
        return payload

    async def left(self) -> int:
        found = await self._app.connector.execute_query_one_async(
            "SELECT count(*) AS number FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        )
        return int(found["number"])

    async def _execute(self, statement: str) -> None:
        options = f"-c search_path={self._order['schema']}"
        async with await psycopg.AsyncConnection.connect(
            self._order["dsn"], autocommit=True, options=options
        ) as connection:
            await connection.execute(statement)


@asynccontextmanager
async def opened(order: dict[str, Any]) -> AsyncIterator[Procrastinate]:
    connector = procrastinate.PsycopgConnector(
        conninfo=order["dsn"],
        kwargs={"options": f"-c search_path={order['schema']}"},
        min_size=24,
        max_size=24,
    )
    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it advises against an App in a main module
    app = procrastinate.App(connector=connector)
    async with app.open_async():
        yield Procrastinate(app, order)


if __name__ == "__main__":
    sys.exit(main(opened))
