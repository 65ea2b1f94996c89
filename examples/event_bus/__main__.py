"""Events for handlers in the same process: no broker, and still nothing is lost in a crash."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

import asyncpg

from examples.environment import address
from outbox_core import Message, Meta, Outbox, Relay, schema
from outbox_core.dispatchers.event_bus import EventBus

TABLE: Final = "accounts_outbox"

bus = EventBus()
outbox = Outbox(TABLE)
welcomed: dict[UUID, str] = {}
audited: list[str] = []
both_welcomed = asyncio.Event()


@dataclass
class AccountOpened:
    account: UUID
    owner: str


@bus.on("accounts.account.opened.v1")
async def welcome(opened: AccountOpened, meta: Meta) -> None:
    # When another handler fails, all of them run again: doing it twice must be the same as doing it once.
    welcomed[meta.event_id] = opened.owner
    if {"Ada", "Grace"} <= set(welcomed.values()):
        both_welcomed.set()


@bus.on("accounts.**")
def audit(meta: Meta) -> None:
    """Handlers that are not asynchronous run in a thread."""
    audited.append(meta.topic)


async def open_account(connection: asyncpg.Connection, owner: str) -> UUID:
    account = uuid4()
    async with connection.transaction():
        await connection.execute("INSERT INTO accounts VALUES ($1, $2)", account, owner)
        await outbox.enqueue(
            connection, Message("accounts.account.opened.v1", AccountOpened(account, owner), key=str(account))
        )
        if not owner:
            raise ValueError("an account needs an owner")
    return account


async def main() -> None:
    database_url = address("OUTBOX_DATABASE_URL")
    await schema.upgrade(database_url, TABLE)
    connection = await asyncpg.connect(database_url)
    await connection.execute("CREATE TABLE IF NOT EXISTS accounts (id uuid PRIMARY KEY, owner text NOT NULL)")

    async with asyncio.timeout(60), Relay(database_url, table=TABLE, dispatcher=bus):
        try:
            await open_account(connection, "")
        except ValueError as error:
            print(f"rolled back: {error}")
        await open_account(connection, "Ada")
        await open_account(connection, "Grace")
        await both_welcomed.wait()
    # Leaving the block stops the relay, which lets handlers that are at work come to their end.
    await connection.close()

    assert "" not in welcomed.values(), "an event of an account that was rolled back"
    assert len(audited) >= len(welcomed)
    print(f"welcomed {', '.join(sorted(welcomed.values()))}; {len(audited)} events audited")


if __name__ == "__main__":
    asyncio.run(main())
