"""aiohttp with asyncpg: relays in ``cleanup_ctx``, transactions in handlers or from a middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge

from outbox_core import Relay
from outbox_core.errors import SchemaMissing
from outbox_core.integrations.aiohttp import (
    AppRelays,
    begin_on,
    bound,
    bound_outbox,
    health_routes,
    metrics_route,
    outbox_context,
)
from outbox_core.testing import RecordingDispatcher
from tests.integration.web.shop import Shop, placed, served_by_aiohttp

pytestmark = pytest.mark.asyncio
POOL = web.AppKey("pool", asyncpg.Pool)
CONNECTION: web.RequestKey[Any] = web.RequestKey("connection", object)


def make_app(shop: Shop, relays: AppRelays, heard: list[str] | None = None) -> web.Application:
    orders_of = bound_outbox(shop.outbox, lambda request: request[CONNECTION])

    async def pool(app: web.Application) -> AsyncIterator[None]:
        async with asyncpg.create_pool(shop.dsn, min_size=1, max_size=3) as app[POOL]:
            yield
            if heard is not None:
                heard.append(f"pool closes, {len(relays.relays)} relays run")

    @web.middleware
    async def in_transaction(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not request.path.startswith("/request"):
            return await handler(request)
        async with request.app[POOL].acquire() as connection, connection.transaction():
            request[CONNECTION] = connection
            return await handler(request)

    async def place(request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        async with bound(shop.outbox, begin_on(request.app[POOL])) as orders:
            await orders.tx.execute("INSERT INTO orders VALUES ($1)", number)
            await orders.enqueue(placed(number))
            if "fail" in request.query:
                raise web.HTTPConflict
        return web.Response(status=201)

    async def place_on_the_request(request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        await request[CONNECTION].execute("INSERT INTO orders VALUES ($1)", number)
        await orders_of(request).enqueue(placed(number))
        if "fail" in request.query:
            raise web.HTTPConflict
        return web.Response(status=201)

    app = web.Application(middlewares=[in_transaction])
    app.cleanup_ctx.append(pool)
    app.cleanup_ctx.append(outbox_context(relays))
    app.add_routes(health_routes(relays))
    app.add_routes([web.post(r"/own/{number}", place), web.post(r"/request/{number}", place_on_the_request)])
    return app


@pytest.mark.parametrize("form", ["own", "request"])
async def test_orders_and_messages_come_together_or_not_at_all(
    shop: Shop, dispatcher: RecordingDispatcher, form: str
) -> None:
    relays, heard = AppRelays(shop.relay(dispatcher)), list[str]()
    async with served_by_aiohttp(make_app(shop, relays, heard)) as client:
        assert (await client.post(f"/{form}/1")).status_code == 201
        assert (await client.post(f"/{form}/2?fail=1")).status_code == 409
        assert (await client.post(f"/{form}/1")).status_code == 500
        assert (await client.post(f"/{form}/3")).status_code == 201
        await dispatcher.wait_for(2)
        assert (await client.get("/health/ready")).json()["ready"] is True
        assert (await client.get("/health/lag")).status_code == 200
        await relays.relays[0].stop(0)
        assert (await client.get("/health/live")).status_code == 503
    assert await shop.orders() == await shop.messages() == [1, 3]
    assert heard == ["pool closes, 0 relays run"]


async def test_a_misconfigured_relay_keeps_the_application_from_starting(shop: Shop) -> None:
    wrong = Relay(shop.dsn, table="nowhere_outbox", dispatcher=RecordingDispatcher())
    with pytest.raises(SchemaMissing, match="nowhere_outbox"):
        async with served_by_aiohttp(make_app(shop, AppRelays(wrong))):
            pass
    degraded = AppRelays(wrong, on_start_error="degrade")
    async with served_by_aiohttp(make_app(shop, degraded)) as client:
        assert (await client.post("/own/1")).status_code == 201
        assert (await client.get("/health/ready")).status_code == 503


async def test_metrics_over_http() -> None:
    registry = CollectorRegistry()
    Gauge("outbox_tests", "Tests.", registry=registry).set(3)
    app = web.Application()
    app.add_routes([metrics_route(registry)])
    async with served_by_aiohttp(app) as client:
        response = await client.get("/debug/prometheus")
        assert "outbox_tests 3.0" in response.text
        assert response.headers["content-type"].startswith("text/plain")
