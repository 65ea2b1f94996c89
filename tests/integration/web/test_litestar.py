"""Litestar with SQLAlchemy: a plugin for the relays, the outbox among the dependencies."""

# Annotations are not postponed here: Litestar could not find those that a function has made.
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from litestar import Litestar, Request, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import ClientException
from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from outbox_core import Relay
from outbox_core.errors import ConfigError
from outbox_core.integrations.litestar import (
    AppRelays,
    BoundOutbox,
    OutboxPlugin,
    bound_outbox,
    health_handlers,
    metrics_handler,
    outbox_transaction,
)
from outbox_core.testing import RecordingDispatcher
from tests.integration.web.shop import NotServed, Shop, insert, placed, served

pytestmark = pytest.mark.asyncio
Orders = Request[Any, Any, Any]
Sessions = async_sessionmaker[AsyncSession]


@pytest_asyncio.fixture
async def sessions(shop: Shop) -> AsyncIterator[Sessions]:
    engine = create_async_engine(shop.sqlalchemy_url)
    yield async_sessionmaker(engine)
    await engine.dispose()


def make_app(shop: Shop, sessions: Sessions, relays: AppRelays, heard: list[str] | None = None) -> Litestar:
    async def get_session() -> AsyncIterator[AsyncSession]:
        async with sessions.begin() as session:
            yield session

    @asynccontextmanager
    async def own(_: Litestar) -> AsyncIterator[None]:
        yield
        if heard is not None:
            heard.append(f"closes, {len(relays.relays)} relays run")

    @post("/own/{number:int}", dependencies={"orders": outbox_transaction(shop.outbox, sessions.begin)})
    async def place(request: Orders, orders: NamedDependency[BoundOutbox[AsyncSession]]) -> None:
        number = request.path_params["number"]
        await insert(orders.tx, number)
        await orders.enqueue(placed(number))
        if "fail" in request.query_params:
            raise ClientException(status_code=409)

    @post(
        "/theirs/{number:int}",
        dependencies={
            "db_session": Provide(get_session),
            "orders": bound_outbox(shop.outbox, "db_session"),
        },
    )
    async def place_in_their_session(
        request: Orders,
        db_session: NamedDependency[AsyncSession],
        orders: NamedDependency[BoundOutbox[AsyncSession]],
    ) -> None:
        number = request.path_params["number"]
        assert orders.tx is db_session
        await insert(db_session, number)
        await orders.enqueue(placed(number))
        if "fail" in request.query_params:
            raise ClientException(status_code=409)

    return Litestar(
        [place, place_in_their_session], lifespan=[own], plugins=[OutboxPlugin(relays)], logging_config=None
    )


@pytest.mark.parametrize("form", ["own", "theirs"])
async def test_orders_and_messages_come_together_or_not_at_all(
    shop: Shop, sessions: Sessions, dispatcher: RecordingDispatcher, form: str
) -> None:
    relays, heard = AppRelays(shop.relay(dispatcher)), list[str]()
    async with served(make_app(shop, sessions, relays, heard)) as client:
        assert (await client.post(f"/{form}/1")).status_code == 201
        assert (await client.post(f"/{form}/2?fail=1")).status_code == 409
        # The constraint is checked at commit: the client hears of it, because nothing was sent before.
        assert (await client.post(f"/{form}/1")).status_code == 500
        assert (await client.post(f"/{form}/3")).status_code == 201
        await dispatcher.wait_for(2)
        assert (await client.get("/health/ready")).json()["ready"] is True
        assert (await client.get("/health/lag")).status_code == 200
        await relays.relays[0].stop(0)
        assert (await client.get("/health/live")).status_code == 503
    assert await shop.orders() == await shop.messages() == [1, 3]
    assert heard == ["closes, 0 relays run"]


async def test_a_misconfigured_relay_keeps_the_application_from_starting(
    shop: Shop, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Relay(shop.dsn, table="nowhere_outbox", dispatcher=RecordingDispatcher())
    with pytest.raises(NotServed):
        async with served(make_app(shop, sessions, AppRelays(wrong))):
            pass
    assert "SchemaMissing" in caplog.text
    degraded = AppRelays(wrong, on_start_error="degrade")
    async with served(make_app(shop, sessions, degraded)) as client:
        assert (await client.post("/own/1")).status_code == 201
        assert (await client.get("/health/ready")).status_code == 503


async def test_health_elsewhere_and_metrics() -> None:
    registry = CollectorRegistry()
    Gauge("outbox_tests", "Tests.", registry=registry).set(3)
    relays = AppRelays(None)
    handlers = [*health_handlers(relays, prefix="/ops"), metrics_handler(registry)]
    async with served(
        Litestar(handlers, plugins=[OutboxPlugin(relays, health=None)], logging_config=None)
    ) as client:
        assert (await client.get("/ops/ready")).json()["ready"] is True
        assert (await client.get("/health/ready")).status_code == 404
        response = await client.get("/debug/prometheus")
        assert "outbox_tests 3.0" in response.text
        assert response.headers["content-type"].startswith("text/plain")


async def test_a_dependency_is_given_by_its_name(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="expected the name of a dependency"):
        bound_outbox(shop.outbox, "db session")
