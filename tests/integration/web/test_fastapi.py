"""FastAPI with SQLAlchemy: one transaction a request, committed before anybody is told."""

# Annotations are not postponed here: FastAPI could not find those that a function has made.
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
import pytest_asyncio
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from prometheus_client import CollectorRegistry, Counter
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from outbox_core import Relay
from outbox_core.errors import ConfigError, NotInTransaction
from outbox_core.integrations.fastapi import (
    AppRelays,
    BoundOutbox,
    bound,
    bound_outbox,
    health_routes,
    metrics_route,
    outbox_lifespan,
    outbox_transaction,
)
from outbox_core.testing import RecordingDispatcher
from tests.integration.web.shop import NotServed, Shop, insert, placed, served
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
Sessions = async_sessionmaker[AsyncSession]


@pytest_asyncio.fixture
async def sessions(shop: Shop) -> AsyncIterator[Sessions]:
    engine = create_async_engine(shop.sqlalchemy_url)
    yield async_sessionmaker(engine)
    await engine.dispose()


class Told:
    """What happened where no response can tell it."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []


def make_app(shop: Shop, sessions: Sessions, relays: AppRelays, told: Told, **options: Any) -> FastAPI:
    async def get_session() -> AsyncIterator[AsyncSession]:
        async with sessions.begin() as session:
            yield session

    session_dep = Annotated[AsyncSession, Depends(get_session, scope="function")]
    own = Annotated[BoundOutbox[AsyncSession], outbox_transaction(shop.outbox, sessions.begin)]
    theirs = Annotated[BoundOutbox[AsyncSession], bound_outbox(shop.outbox, session_dep)]
    app = FastAPI(lifespan=outbox_lifespan(relays, **options), routes=health_routes(relays))

    @app.post("/own/{number}", status_code=201)
    async def place_in_our_transaction(number: int, orders: own, fail: str = "") -> dict[str, int]:
        await insert(orders.tx, number)
        sequence = await orders.enqueue(placed(number))
        if fail == "http":
            raise HTTPException(409, "sold out")
        if fail == "bug":
            raise ZeroDivisionError
        return {"sequence": sequence}

    @app.post("/theirs/{number}", status_code=201)
    async def place_in_their_transaction(
        number: int, session: session_dep, orders: theirs, fail: str = ""
    ) -> dict[str, bool]:
        await insert(session, number)
        await orders.enqueue_many([placed(number)])
        if fail == "http":
            raise HTTPException(409, "sold out")
        if fail == "bug":
            raise ZeroDivisionError
        return {"same": orders.tx is session}

    @app.post("/background/{number}")
    async def later(number: int, orders: own, theirs: theirs, tasks: BackgroundTasks) -> None:
        async def misuse(orders: BoundOutbox[AsyncSession]) -> None:
            try:
                await orders.enqueue(placed(number))
            except NotInTransaction as error:
                told.errors.append(error)

        async def proper() -> None:
            async with bound(shop.outbox, sessions.begin) as own:
                await own.enqueue(placed(number))

        tasks.add_task(misuse, orders)
        tasks.add_task(misuse, theirs)
        tasks.add_task(proper)

    @app.get("/stream/{number}")
    async def stream(number: int, orders: own) -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            try:
                await orders.enqueue(placed(number))
            except NotInTransaction as error:
                yield str(error)

        return StreamingResponse(lines())

    return app


@pytest.mark.parametrize("form", ["own", "theirs"])
async def test_an_order_and_its_message_are_committed_together_and_delivered(
    shop: Shop, sessions: Sessions, dispatcher: RecordingDispatcher, form: str
) -> None:
    relays = AppRelays(shop.relay(dispatcher))
    async with served(make_app(shop, sessions, relays, Told())) as client:
        for number in range(5):
            response = await client.post(f"/{form}/{number}")
            assert response.status_code == 201
            assert response.json() in ({"same": True}, {"sequence": number + 1})
        await dispatcher.wait_for(5)
    assert await shop.orders() == await shop.messages() == [0, 1, 2, 3, 4]
    assert await shop.states() == {"published": 5}


@pytest.mark.parametrize("form", ["own", "theirs"])
async def test_a_request_that_fails_after_enqueue_leaves_nothing(
    shop: Shop, sessions: Sessions, form: str
) -> None:
    async with served(make_app(shop, sessions, AppRelays(None), Told())) as client:
        assert (await client.post(f"/{form}/1?fail=http")).status_code == 409
        assert (await client.post(f"/{form}/2?fail=bug")).status_code == 500
        assert (await client.post(f"/{form}/3")).status_code == 201
        # The constraint is checked at commit: the client hears of it, because nothing was sent before.
        assert (await client.post(f"/{form}/3")).status_code == 500
    assert await shop.orders() == await shop.messages() == [3]


async def test_background_tasks_and_streams_come_too_late_and_are_told(
    shop: Shop, sessions: Sessions
) -> None:
    told = Told()
    async with served(make_app(shop, sessions, AppRelays(None), told)) as client:
        assert (await client.post("/background/1")).status_code == 200
        response = await client.get("/stream/2")
        assert "the transaction of this request has ended" in response.text
    assert [type(error) for error in told.errors] == [NotInTransaction, NotInTransaction]
    assert await shop.messages() == [1]


async def test_health_over_http(shop: Shop, sessions: Sessions, dispatcher: RecordingDispatcher) -> None:
    relays = AppRelays(shop.relay(dispatcher))
    async with served(make_app(shop, sessions, relays, Told())) as client:
        for probe in ("live", "ready", "lag"):
            response = await client.get(f"/health/{probe}")
            assert response.status_code == 200
            assert response.headers["cache-control"] == "no-store"
        assert response.json()["reasons"] == []
        await until(lambda: relays.health().relays[0].age is not None)
        (relay,) = (await client.get("/health/lag")).json()["relays"]
        assert relay["pending"] == {"value": 0, "exact": True}
        assert 0 <= relay["figures_age_seconds"] < 60
        await relays.relays[0].stop(0)
        for probe in ("live", "ready"):
            assert (await client.get(f"/health/{probe}")).status_code == 503
        assert "/health/live" not in (await client.get("/openapi.json")).json()["paths"]


async def test_a_misconfigured_relay_keeps_the_application_from_starting(
    shop: Shop, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Relay(shop.dsn, table="nowhere_outbox", dispatcher=RecordingDispatcher())
    with pytest.raises(NotServed):
        async with served(make_app(shop, sessions, AppRelays(wrong), Told())):
            pass
    assert "SchemaMissing" in caplog.text
    assert "This kept the application from starting" in caplog.text
    degraded = AppRelays(wrong, on_start_error="degrade")
    async with served(make_app(shop, sessions, degraded, Told())) as client:
        assert (await client.post("/own/1")).status_code == 201
        assert (await client.get("/health/live")).status_code == 200
        response = await client.get("/health/ready")
        assert response.status_code == 503
        assert "SchemaMissing" in response.json()["reasons"][0]
        assert "nowhere" not in response.text


async def test_metrics_over_http() -> None:
    registry = CollectorRegistry()
    Counter("outbox_tests", "Tests.", registry=registry).inc(3)
    async with served(FastAPI(routes=[metrics_route(registry)])) as client:
        response = await client.get("/debug/prometheus")
        assert "outbox_tests_total 3.0" in response.text
        assert response.headers["content-type"].startswith("text/plain")


async def test_the_own_lifespan_is_around_the_relays(shop: Shop, sessions: Sessions) -> None:
    heard: list[str] = []
    relays = AppRelays(shop.relay(RecordingDispatcher()))

    class Lifespan:
        def __init__(self, app: FastAPI) -> None:
            pass

        async def __aenter__(self) -> dict[str, int]:
            heard.append(f"begin {len(relays.relays)}")
            return {"answer": 42}

        async def __aexit__(self, *_: object) -> None:
            heard.append(f"end {len(relays.relays)}")

    app = make_app(shop, sessions, relays, Told(), lifespan=Lifespan)

    @app.get("/state")
    async def state(request: Request) -> int:
        answer: int = request.state.answer
        return answer

    async with served(app) as client:
        assert (await client.get("/health/ready")).status_code == 200
        assert (await client.get("/state")).json() == 42
    assert heard == ["begin 0", "end 0"]


async def test_a_session_asked_for_in_another_way_is_refused(shop: Shop) -> None:
    async def get_session() -> None: ...

    for wrong in (get_session, AsyncSession, Annotated[AsyncSession, "x"]):
        with pytest.raises(ConfigError, match=r"expected Depends\(…\) or Annotated"):
            bound_outbox(shop.outbox, wrong)
    bound_outbox(shop.outbox, Depends(get_session))
