"""The wake-up hint: told at commit, rarely, and only when wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import schema
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from tests.services.postgres import Database

pytestmark = [pytest.mark.asyncio, pytest.mark.store]


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    await schema.create(connection, "shop.orders_outbox")
    yield connection
    await connection.close()


class Listener:
    """Hears the channel, and a word of its own after which nothing earlier can still come."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen(self) -> None:
        await self._connection.add_listener("outbox", lambda *heard: self._heard.put_nowait(heard[3]))

    async def heard(self) -> list[str]:
        """What was told since the last call."""
        await self._connection.execute("SELECT pg_notify('outbox', 'end')")
        words: list[str] = []
        async with asyncio.timeout(10):
            while (word := await self._heard.get()) != "end":
                words.append(word)
        return words


@pytest_asyncio.fixture
async def listener(database: Database) -> AsyncIterator[Listener]:
    connection = await asyncpg.connect(database.dsn)
    listener = Listener(connection)
    await listener.listen()
    yield listener
    await connection.reset()
    await connection.close()


def message() -> Message:
    return Message("shop.order.placed.v1", {})


@pytest.mark.parametrize("size", [1, 3])
async def test_relays_are_told_at_commit(
    connection: asyncpg.Connection, listener: Listener, size: int
) -> None:
    async with connection.transaction():
        await Outbox("shop.orders_outbox").enqueue_many(connection, [message() for _ in range(size)])
        assert await listener.heard() == []
    assert await listener.heard() == ["shop.orders_outbox"]


async def test_a_rollback_tells_nobody(connection: asyncpg.Connection, listener: Listener) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await Outbox("shop.orders_outbox").enqueue(connection, message())
    await transaction.rollback()
    assert await listener.heard() == []


async def test_a_repetition_alone_tells_nobody(connection: asyncpg.Connection, listener: Listener) -> None:
    once = message()
    async with connection.transaction():
        await Outbox("shop.orders_outbox", hint=False).enqueue(connection, once)
    async with connection.transaction():
        await Outbox("shop.orders_outbox").enqueue(connection, once)
    assert await listener.heard() == []


async def test_hints_of_a_process_are_coalesced(
    connection: asyncpg.Connection, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("outbox_core.outbox.time.monotonic", lambda: now)
    outbox = Outbox("shop.orders_outbox")
    for _ in range(20):
        async with connection.transaction():
            await outbox.enqueue(connection, message())
    assert await listener.heard() == ["shop.orders_outbox"]
    now += 0.051
    async with connection.transaction():
        await outbox.enqueue(connection, message())
    assert await listener.heard() == ["shop.orders_outbox"]


async def test_without_hints_a_transaction_can_be_prepared(
    connection: asyncpg.Connection, listener: Listener, unique_name: str
) -> None:
    await connection.execute("BEGIN")
    await Outbox("shop.orders_outbox", hint=False).enqueue(connection, message())
    await Outbox("shop.orders_outbox", hint=False).enqueue_many(connection, [message(), message()])
    await connection.execute(f"PREPARE TRANSACTION '{unique_name}'")
    assert await Outbox("shop.orders_outbox").count(connection) == 0
    await connection.execute(f"COMMIT PREPARED '{unique_name}'")
    assert await Outbox("shop.orders_outbox").count(connection) == 3
    assert await listener.heard() == []


async def test_with_hints_it_cannot(connection: asyncpg.Connection, unique_name: str) -> None:
    await connection.execute("BEGIN")
    await Outbox("shop.orders_outbox").enqueue(connection, message())
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="NOTIFY"):
        await connection.execute(f"PREPARE TRANSACTION '{unique_name}'")
