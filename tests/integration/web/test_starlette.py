"""Starlette with asyncpg: a transaction in the handler, or the one that a middleware has put into the request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry, Gauge
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outbox_core.errors import NotInTransaction
from outbox_core.integrations.starlette import (
    AppRelays,
    begin_on,
    bound,
    bound_outbox,
    health_routes,
    metrics_route,
    outbox_lifespan,
)
from outbox_core.testing import RecordingDispatcher
from tests.integration.web.shop import Shop, placed, served

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def pool(shop: Shop) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(shop.dsn, min_size=1, max_size=3) as pool:
        yield pool


def make_app(shop: Shop, pool: asyncpg.Pool, relays: AppRelays) -> Starlette:
    orders_of = bound_outbox(shop.outbox, lambda request: request.state.connection)

    async def place(request: Request) -> Response:
        number = int(request.path_params["number"])
        async with bound(shop.outbox, begin_on(pool)) as orders:
            await orders.tx.execute("INSERT INTO orders VALUES ($1)", number)
            await orders.enqueue(placed(number))
            if "fail" in request.query_params:
                raise HTTPException(409)
        return JSONResponse({}, 201)

    async def place_on_the_request(request: Request) -> Response:
        number = int(request.path_params["number"])
        async with pool.acquire() as connection, connection.transaction():
            request.state.connection = connection
            await connection.execute("INSERT INTO orders VALUES ($1)", number)
            await orders_of(request).enqueue(placed(number))
            if "fail" in request.query_params:
                raise HTTPException(409)
        return JSONResponse({}, 201)

    routes = [
        Route("/own/{number:int}", place, methods=["POST"]),
        Route("/request/{number:int}", place_on_the_request, methods=["POST"]),
        *health_routes(relays, prefix="/outbox/"),
    ]
    return Starlette(routes=routes, lifespan=outbox_lifespan(relays))


@pytest.mark.parametrize("form", ["own", "request"])
async def test_orders_and_messages_come_together_or_not_at_all(
    shop: Shop, pool: asyncpg.Pool, dispatcher: RecordingDispatcher, form: str
) -> None:
    relays = AppRelays(shop.relay(dispatcher))
    async with served(make_app(shop, pool, relays)) as client:
        assert (await client.post(f"/{form}/1")).status_code == 201
        assert (await client.post(f"/{form}/2?fail=1")).status_code == 409
        assert (await client.post(f"/{form}/1")).status_code == 500
        assert (await client.post(f"/{form}/3")).status_code == 201
        await dispatcher.wait_for(2)
        assert (await client.get("/outbox/ready")).json()["ready"] is True
    assert await shop.orders() == await shop.messages() == [1, 3]
    assert sorted(message.payload["order"] for message in dispatcher.published()) == [1, 3]


async def test_the_own_lifespan_opens_what_dispatchers_use(shop: Shop) -> None:
    opened: list[str] = []
    dispatcher = RecordingDispatcher()

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[dict[str, str]]:
        opened.append("open")
        yield {"name": "shop"}
        assert relays.relays == ()
        opened.append("closed")

    relays = AppRelays(lambda: shop.relay(dispatcher) if opened else ())

    async def name(request: Request) -> Response:
        return JSONResponse(request.state.name)

    app = Starlette(routes=[Route("/name", name)], lifespan=outbox_lifespan(relays, lifespan=own))
    async with served(app) as client:
        assert (await client.get("/name")).json() == "shop"
        assert len(relays.relays) == 1
    assert opened == ["open", "closed"]


async def test_a_binding_ends_with_its_transaction(shop: Shop, pool: asyncpg.Pool) -> None:
    async with bound(shop.outbox, begin_on(pool)) as orders:
        await orders.enqueue_many([placed(1), placed(2)], serialize_key=True)
    with pytest.raises(NotInTransaction, match="the transaction of this request has ended"):
        await orders.enqueue(placed(3))
    with pytest.raises(NotInTransaction, match="a transaction of its own"):
        await orders.enqueue_many([placed(3)])
    assert await shop.messages() == [1, 2]


async def test_a_pool_that_a_lifespan_opens_is_asked_for_at_each_transaction(
    shop: Shop, pool: asyncpg.Pool
) -> None:
    opened: dict[str, asyncpg.Pool] = {}
    begin = begin_on(lambda: opened["pool"])
    with pytest.raises(KeyError):
        async with bound(shop.outbox, begin):
            pass
    opened["pool"] = pool
    async with bound(shop.outbox, begin) as orders:
        await orders.enqueue(placed(1))

    async def fail() -> None:
        async with bound(shop.outbox, begin) as orders:
            await orders.enqueue(placed(2))
            await orders.tx.fetchval("SELECT 1 / 0")

    with pytest.raises(asyncpg.DivisionByZeroError):
        await fail()
    assert await shop.messages() == [1]


async def test_metrics_over_http() -> None:
    registry = CollectorRegistry()
    Gauge("outbox_tests", "Tests.", registry=registry).set(3)
    async with served(Starlette(routes=[metrics_route(registry, "/metrics")])) as client:
        response = await client.get("/metrics", headers={"accept": "application/openmetrics-text"})
        assert "outbox_tests 3.0" in response.text
        assert response.headers["content-type"].startswith("application/openmetrics-text")
