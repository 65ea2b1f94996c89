"""The application that a server runs with several processes; what they deliver goes into a journal they share."""

# Annotations are not postponed here: FastAPI finds what they name in this module only.
import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from outbox_core import DispatchedMessage, Outbox
from outbox_core.config import Settings
from outbox_core.integrations.fastapi import (
    AppRelays,
    BoundOutbox,
    health_routes,
    outbox_lifespan,
    outbox_transaction,
)
from tests.integration.relay.journal import Journal
from tests.integration.web.shop import TABLE, insert, placed

JOURNAL = Journal(Path(os.environ["SHOP_JOURNAL"]))
engine = create_async_engine(
    os.environ["OUTBOX_DATABASE_URL"].replace("postgresql://", "postgresql+asyncpg://", 1), pool_size=8
)
sessions = async_sessionmaker(engine)
Orders = Annotated[BoundOutbox[AsyncSession], outbox_transaction(Outbox(TABLE), sessions.begin)]


async def publish(message: DispatchedMessage) -> None:
    await asyncio.sleep(0.005)
    JOURNAL.write("ack", order=json.loads(message.payload)["order"])


@asynccontextmanager
async def database(app: FastAPI) -> AsyncIterator[None]:
    yield
    await engine.dispose()


relays = AppRelays(Settings.from_env, dispatcher=publish)
app = FastAPI(lifespan=outbox_lifespan(relays, lifespan=database), routes=health_routes(relays))


@app.post("/orders/{number}", status_code=201)
async def place(number: int, orders: Orders) -> int:
    await insert(orders.tx, number)
    await orders.enqueue(placed(number))
    if number % 10 == 9:
        raise HTTPException(409)
    return os.getpid()
