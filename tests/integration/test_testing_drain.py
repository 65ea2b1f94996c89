"""`drain` of the test kit, on a real table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import Message, Outbox, PermanentError, Relay, schema
from outbox_core.testing import RecordingDispatcher, drain, matching
from tests.kit.waiting import until
from tests.services.postgres import Database

pytestmark = pytest.mark.asyncio
TABLE = "orders_outbox"
TOPIC = "shop.order.placed.v1"


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    try:
        await schema.create(connection, TABLE)
        yield connection
    finally:
        await connection.close()


async def enqueue(connection: asyncpg.Connection, *messages: Message) -> None:
    async with connection.transaction():
        await Outbox(TABLE).enqueue_many(connection, messages)


async def test_delivers_what_is_committed_and_due(database: Database, connection: asyncpg.Connection) -> None:
    assert await drain(database.dsn, TABLE) == []
    await enqueue(connection, *(Message(TOPIC, {"order": number}, key="k") for number in range(3)))
    await enqueue(connection, Message(TOPIC, {"order": 9}, delay=timedelta(hours=1)))
    delivered = await drain(database.dsn, TABLE)
    assert [message.payload for message in delivered] == [{"order": 0}, {"order": 1}, {"order": 2}]
    assert delivered[0].payload == matching(order=0)
    assert await drain(database.dsn, TABLE) == []


async def test_with_scripted_failures(database: Database, connection: asyncpg.Connection) -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.fail(RuntimeError("not now"), times=1)
    dispatcher.fail(PermanentError("never"), topic="mail.**")
    await enqueue(connection, Message(TOPIC, 1), Message("mail.letter.asked.v1", 2))
    delivered = await drain(database.dsn, TABLE, dispatcher=dispatcher)
    async with asyncio.timeout(20):
        while not dispatcher.published(TOPIC):
            delivered += await drain(database.dsn, TABLE, dispatcher=dispatcher)
    assert [(message.topic, message.attempts) for message in delivered] == [(TOPIC, 2)]
    assert await Outbox(TABLE).count(connection, state="dead") == 1


async def test_says_that_another_relay_leads(database: Database, connection: asyncpg.Connection) -> None:
    frozen = RecordingDispatcher()
    frozen.freeze()
    async with Relay(database.dsn, table=TABLE, dispatcher=frozen) as leader:
        await enqueue(connection, Message(TOPIC, 1))
        await until(lambda: bool(frozen.received))
        with pytest.raises(TimeoutError, match="another relay leads"):
            await drain(database.dsn, TABLE, timeout=1.0)
        frozen.thaw()
        await leader.stop()
