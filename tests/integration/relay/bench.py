"""A table, a way to fill and read it, relays with short settings, and what they told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

import outbox_core
from outbox_core import schema
from outbox_core.dispatcher import Dispatcher
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Event
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from tests.kit.observing import Heard
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until
from tests.services.postgres import Database

TABLE = "shop.orders_outbox"
TOPIC = "shop.order.placed.v1"
STOPPED_SECONDS = 2.0
"""In which a relay is gone that is stopped with a grace of 1 s, as one is that is cancelled."""


class Bench:
    """One table in a database of the test's own."""

    def __init__(self, dsn: str, connection: asyncpg.Connection) -> None:
        self.dsn = dsn
        """Where relays connect."""
        self.writers = dsn
        """Where applications do."""
        self.connection = connection
        self.outbox = Outbox(TABLE)
        self.heard = Heard()

    def relay(
        self,
        dispatcher: Dispatcher | Callable[[DispatchedMessage], Awaitable[None]],
        *,
        observers: Sequence[Callable[[Event], None]] = (),
        **settings: Any,
    ) -> Relay:
        return Relay(
            self.dsn,
            table=TABLE,
            dispatcher=dispatcher,
            observers=(self.heard, *observers),
            **(QUICK_POSTGRES | settings),
        )

    async def enqueue(self, *payloads: object, topic: str = TOPIC, **fields: Any) -> list[UUID]:
        """Write one message per payload, in one committed transaction."""
        messages = [Message(topic, payload, **fields) for payload in payloads]
        async with self.connection.transaction():
            await self.outbox.enqueue_many(self.connection, messages)
        return [message.event_id for message in messages]

    async def rows(self, content: str = "payload::text") -> list[asyncpg.Record]:
        """Every row by sequence, with its state and its content as text."""
        return await self.connection.fetch(
            f"""
            SELECT sequence, attempts, last_error, lock_token, {content} AS content, CASE
                WHEN dead_at IS NOT NULL THEN 'dead' WHEN published_at IS NOT NULL THEN 'published'
                WHEN lock_token IS NOT NULL THEN 'in_flight' ELSE 'pending' END AS state
            FROM {TABLE} ORDER BY sequence
            """  # noqa: S608 - a constant
        )

    async def row(self) -> asyncpg.Record:
        """The only row."""
        (row,) = await self.rows()
        return row

    async def states(self) -> dict[str, int]:
        return dict(Counter(row["state"] for row in await self.rows("NULL")))

    async def settled(self, timeout: float = 20.0) -> dict[str, int]:
        """Wait until every row is published or dead; how many of each."""

        async def done() -> bool:
            return not (await self.states()).keys() & {"pending", "in_flight"}

        await until(done, timeout)
        return await self.states()

    async def sessions(self) -> int:
        """Relay sessions the server knows of in this database."""
        count: int = await self.connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'outbox:%'"
        )
        return count

    async def locks(self) -> int:
        """Advisory locks held in this database."""
        count: int = await self.connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return count

    async def nothing_is_left(self) -> None:
        """No session and no lock of a relay remains, as soon as the server has noticed."""

        async def clean() -> bool:
            return await self.sessions() == 0 and await self.locks() == 0

        await until(clean)


@asynccontextmanager
async def prepared(database: Database) -> AsyncIterator[Bench]:
    """A bench with an empty table, current in schema."""
    connection = await asyncpg.connect(database.dsn)
    try:
        await schema.create(connection, TABLE)
        yield Bench(database.dsn, connection)
    finally:
        await connection.close()


def relay_tasks() -> list[str]:
    """The names of the tasks of relays that are there now."""
    package = str(
        Path(outbox_core.__file__).parent
    )  # not its name: the folder of the repository may have it too
    return [
        task.get_name()
        for task in asyncio.all_tasks()
        if package in repr(task) or task.get_name().startswith("outbox-")
    ]
