"""Orders come in over HTTP and are stored with SQLAlchemy; their events go to Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final
from uuid import UUID, uuid4

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, PositiveInt
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from examples.environment import address
from outbox_core import Message, Outbox, Relay, schema
from outbox_core.integrations.fastapi import (
    AppRelays,
    BoundOutbox,
    health_routes,
    outbox_lifespan,
    outbox_transaction,
)
from outbox_kafka import KafkaAddress, KafkaDispatcher

TABLE: Final = "store_outbox"
TOPIC: Final = "shop.order.placed.v1"
IN_STOCK: Final = 100

database_url = address("OUTBOX_DATABASE_URL")
kafka_url = address("KAFKA_URL")

engine = create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://", 1))
sessions = async_sessionmaker(engine)
outbox = Outbox(TABLE)
relays = AppRelays(Relay(database_url, table=TABLE, dispatcher=KafkaDispatcher(url=kafka_url)))

# One transaction for each request: it commits before the response is sent, and rolls back when the function raises.
Orders = Annotated[BoundOutbox[AsyncSession], outbox_transaction(outbox, sessions.begin)]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "store_orders"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    product: Mapped[str]
    quantity: Mapped[int]


class NewOrder(BaseModel):
    product: str
    quantity: PositiveInt


class PlacedOrder(BaseModel):
    id: UUID


@asynccontextmanager
async def prepared(_: FastAPI) -> AsyncIterator[None]:
    """Tables and topic, so that the example starts on empty servers. Elsewhere migrations and operators make them."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await schema.upgrade(database_url, TABLE)
    await create_topic()
    yield
    await engine.dispose()


async def create_topic() -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=KafkaAddress.parse(kafka_url).bootstrap_servers)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
    finally:
        await admin.close()
    for topic, code, *_ in answer.topic_errors:
        if code and for_code(code) is not TopicAlreadyExistsError:
            raise for_code(code)(f"the topic {topic} could not be created")


app = FastAPI(lifespan=outbox_lifespan(relays, lifespan=prepared), routes=health_routes(relays))


@app.post("/orders", status_code=201)
async def place_order(new: NewOrder, orders: Orders) -> PlacedOrder:
    order = Order(id=uuid4(), product=new.product, quantity=new.quantity)
    orders.tx.add(order)
    await orders.enqueue(
        Message(
            TOPIC,
            {"order": order.id, "product": order.product, "quantity": order.quantity},
            key=str(order.id),
        )
    )
    if order.quantity > IN_STOCK:
        # Neither the order nor its event will have existed.
        raise HTTPException(409, "sold out")
    return PlacedOrder(id=order.id)
