"""Migrate with Alembic, check the table, and send a message through it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final
from uuid import uuid4

import asyncpg
from alembic import command
from alembic.config import Config

from examples.environment import address
from outbox_core import DispatchedMessage, Message, Outbox, Relay, schema

TABLE: Final = "tickets_outbox"

outbox = Outbox(TABLE)
delivered: list[DispatchedMessage] = []


async def deliver(message: DispatchedMessage) -> None:
    delivered.append(message)


async def use(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    report = await schema.verify(connection, TABLE)
    print(report)
    report.raise_if_different()

    opened = Message("tickets.ticket.opened.v1", {"title": "The printer is on fire"})
    async with connection.transaction():
        await connection.execute("INSERT INTO tickets VALUES ($1, $2)", uuid4(), "The printer is on fire")
        await outbox.enqueue(connection, opened)
    await connection.close()
    await Relay(database_url, table=TABLE, dispatcher=deliver).run_once(timeout=30)
    assert opened.event_id in [message.meta.event_id for message in delivered]
    print(f"{opened.topic} was delivered through the table that Alembic made")


if __name__ == "__main__":
    url = address("OUTBOX_DATABASE_URL")
    command.upgrade(Config(Path(__file__).with_name("alembic.ini")), "head")
    asyncio.run(use(url))
