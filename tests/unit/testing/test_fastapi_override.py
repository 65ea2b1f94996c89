"""A FastAPI application whose requests get an outbox in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from unittest.mock import AsyncMock

import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_core import Message, Outbox
from outbox_core.errors import ConfigError, NotInTransaction
from outbox_core.integrations.fastapi import BoundOutbox, bound_outbox, dependency_of, outbox_transaction
from outbox_core.testing import MemoryOutbox, matching
from outbox_core.testing.fastapi import override_outbox

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def no_database() -> AsyncIterator[Any]:
    raise ConnectionError("there is no database here")
    yield


async def get_session() -> Any:
    raise ConnectionError("there is no database here")


OUTBOX = Outbox("shop_outbox")
Orders = Annotated[BoundOutbox[Any], outbox_transaction(OUTBOX, no_database)]
Bound = Annotated[BoundOutbox[Any], bound_outbox(OUTBOX, Depends(get_session))]
Shop = Annotated[BoundOutbox[AsyncSession], outbox_transaction(OUTBOX, no_database)]
late: list[Exception] = []


def make_app() -> FastAPI:
    app = FastAPI()

    @app.post("/orders/{number}", status_code=201)
    async def place(number: int, orders: Orders) -> str:
        stored = await orders.tx.fetchval("INSERT INTO orders VALUES ($1) RETURNING id", number)
        await orders.enqueue(Message("shop.order.placed.v1", {"order": number}))
        await orders.enqueue_many([Message("shop.mail.due.v1", {"order": number})])
        await asyncio.sleep(0)
        if number > 100:
            raise HTTPException(409, "sold out")
        return str(stored)

    @app.post("/bound/{number}", status_code=201)
    async def place_bound(number: int, orders: Bound) -> None:
        await orders.enqueue(Message("shop.order.placed.v1", {"order": number}))

    @app.post("/late/{number}", status_code=201)
    async def place_late(number: int, orders: Orders, tasks: BackgroundTasks) -> None:
        async def later() -> None:
            try:
                await orders.enqueue(Message("shop.order.placed.v1", {"order": number}))
            except NotInTransaction as error:
                late.append(error)

        tasks.add_task(later)

    return app


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")


async def test_what_a_request_enqueues_is_there_when_it_has_succeeded() -> None:
    app = make_app()
    with override_outbox(app, Orders) as outbox:
        async with client_of(app) as client:
            assert (await client.post("/orders/7")).status_code == 201
            assert (await client.post("/orders/101")).status_code == 409
    outbox.assert_enqueued("shop.order.placed.v1", payload=matching(order=7))
    outbox.assert_not_enqueued(payload=matching(order=101))
    assert [message.topic for message in await outbox.drain()] == ["shop.order.placed.v1", "shop.mail.due.v1"]


async def test_requests_at_the_same_time_do_not_share_a_transaction() -> None:
    app = make_app()
    with override_outbox(app, Orders) as outbox:
        async with client_of(app) as client:
            codes = await asyncio.gather(*(client.post(f"/orders/{number}") for number in range(95, 106)))
    assert sorted(answer.status_code for answer in codes) == [201] * 6 + [409] * 5
    placed = outbox.enqueued("shop.order.placed.v1")
    assert sorted(message.payload["order"] for message in placed) == list(range(95, 101))


async def test_the_double_is_yours_to_prepare() -> None:
    app, own = make_app(), MemoryOutbox("other_outbox")
    connection = AsyncMock()
    connection.fetchval.return_value = 41
    with override_outbox(app, Orders, own, tx=connection) as outbox:
        assert outbox is own
        async with client_of(app) as client:
            assert (await client.post("/orders/7")).json() == "41"
    connection.fetchval.assert_awaited_once_with("INSERT INTO orders VALUES ($1) RETURNING id", 7)


async def test_a_dependency_on_a_session_is_overridden_too() -> None:
    app = make_app()
    with override_outbox(app, Bound) as outbox:
        async with client_of(app) as client:
            assert (await client.post("/bound/7")).status_code == 201
    outbox.assert_enqueued("shop.order.placed.v1")


async def test_after_the_request_nothing_can_be_enqueued() -> None:
    late.clear()
    app = make_app()
    with override_outbox(app, Orders) as outbox:
        async with client_of(app) as client:
            assert (await client.post("/late/7")).status_code == 201
    assert [type(error) for error in late] == [NotInTransaction]
    outbox.assert_not_enqueued()


async def test_afterwards_the_overrides_are_as_they_were() -> None:
    app = make_app()
    app.dependency_overrides[get_session] = kept = AsyncMock()
    with override_outbox(app, Orders) as outer, override_outbox(app, Orders) as inner:
        assert outer is not inner
        assert len(app.dependency_overrides) == 2
    assert app.dependency_overrides == {get_session: kept}
    async with client_of(app) as client:
        with pytest.raises(ConnectionError):
            await client.post("/orders/7")


async def test_an_override_by_hand() -> None:
    """With a transaction of the test's own, such as one on a test database."""
    app, memory = make_app(), MemoryOutbox()
    other = outbox_transaction(memory, lambda: memory.transaction())
    app.dependency_overrides[dependency_of(Bound)] = dependency_of(other)
    async with client_of(app) as client:
        assert (await client.post("/bound/7")).status_code == 201
    memory.assert_enqueued("shop.order.placed.v1")


@pytest.mark.parametrize("wrong", [BoundOutbox, Annotated[int, "x"], get_session, None])
async def test_what_is_no_dependency_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"expected Depends\(…\) or Annotated\[…, Depends\(…\)\]"):
        dependency_of(wrong)
    with pytest.raises(ConfigError, match="names no function"):
        dependency_of(Depends())


async def test_the_default_double_is_of_the_annotated_type() -> None:
    app = FastAPI()

    @app.post("/orders/{number}", status_code=201)
    async def place(number: int, orders: Shop) -> int:
        orders.tx.add(object())
        async with orders.tx.begin_nested():
            found = (await orders.tx.execute(text("SELECT 1"))).scalars().all()
        await orders.tx.flush()
        await orders.enqueue(Message("shop.order.placed.v1", {"order": number}))
        return len(list(found))

    with override_outbox(app, Shop) as memory:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            answer = await client.post("/orders/7")
    assert (answer.status_code, answer.json()) == (201, 0)
    memory.assert_enqueued("shop.order.placed.v1", payload={"order": 7})
