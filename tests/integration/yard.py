"""A table with messages in every state and of any age, and the operators' tools on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg

from outbox_core import TableName, schema
from outbox_core.dead_letters import DeadLetters, Filter
from outbox_core.observer import Event
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from tests.services.postgres import Database

TABLE = "shop.orders_outbox"
NAME = TableName.parse(TABLE)
TOPIC = "shop.order.placed.v1"
NIL = UUID(int=0)
OTHER = UUID("22222222-2222-2222-2222-222222222222")
ALL = Filter(topic=TOPIC)
BECAUSE: dict[str, Any] = {"actor": "ada", "reason": "the consumer is mended"}

_ADD = """
    INSERT INTO shop.orders_outbox (
        tenant_id, topic, event_id, digest, payload, headers, key, created_at, published_at, dead_at, last_error,
        attempts, locked_at, lock_token
    )
    SELECT $1::uuid, $2::text, gen_random_uuid(), decode(repeat('00', 32), 'hex'), '{"secret": 1}', '{"h": "hidden"}',
        $3::text, now() - make_interval(secs => $4::float8 + $5::float8),
        CASE WHEN $6::text = 'published' THEN now() - make_interval(secs => $4::float8) END,
        CASE WHEN $6::text = 'dead' THEN now() - make_interval(secs => $4::float8) END,
        CASE WHEN $6::text = 'dead' THEN $7::text END,
        CASE WHEN $6::text = 'pending' THEN 0 ELSE 25 END,
        CASE WHEN $6::text = 'in_flight' THEN now() END,
        CASE WHEN $6::text = 'in_flight' THEN gen_random_uuid() END
    FROM generate_series(1, $8::int)
    RETURNING event_id
"""


class Yard:
    def __init__(self, dsn: str, connection: asyncpg.Connection, admin_store: PostgresAdminStore) -> None:
        self.dsn = dsn
        """Where operators and cleaners connect."""
        self.relays = dsn
        """Where relays do."""
        self.connection = connection
        self.admin_store = admin_store
        self.heard: list[Event] = []
        self.letters = DeadLetters(admin_store, TABLE, observers=[self.heard.append])

    async def add(
        self,
        state: str,
        count: int = 1,
        *,
        age: float = 100.0,
        earlier: float = 0.0,
        topic: str = TOPIC,
        tenant: UUID = NIL,
        key: str | None = None,
        error: str = "TX.TIMEOUT no answer",
    ) -> list[UUID]:
        """Rows that have been in a state for ``age`` seconds and were created ``earlier`` seconds before that."""
        rows = await self.connection.fetch(_ADD, tenant, topic, key, age, earlier, state, error, count)
        return [row["event_id"] for row in rows]

    async def rows(self) -> dict[UUID, asyncpg.Record]:
        rows = await self.connection.fetch("SELECT * FROM shop.orders_outbox ORDER BY sequence")
        return {row["event_id"]: row for row in rows}

    async def states(self) -> dict[str, int]:
        return dict(Counter(state_of(row) for row in (await self.rows()).values()))


def state_of(row: asyncpg.Record) -> str:
    if row["dead_at"] is not None:
        return "dead"
    if row["published_at"] is not None:
        return "published"
    return "pending" if row["lock_token"] is None else "in_flight"


async def mixed(yard: Yard) -> None:
    """Six dead letters of three topics, two tenants and two errors among messages that are not dead."""
    await yard.add("dead", 3, topic="shop.order.placed.v1", error="TX.TIMEOUT no answer", age=10_000)
    await yard.add("dead", 2, topic="shop.order.placed.v2", error="PROVIDER.PERMANENT too large", age=500)
    await yard.add("dead", 1, topic="shop.invoice.sent.v1", error="TX.TIMEOUT no answer", tenant=OTHER, age=5)
    await yard.add("published", 7)
    await yard.add("pending", 7)


async def replays(yard: Yard) -> dict[int, int]:
    """How many rows have been replayed how often."""
    return dict(Counter(row["replays"] for row in (await yard.rows()).values()))


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Yard]:
    connection = await asyncpg.connect(database.dsn)
    try:
        await schema.create(connection, TABLE)
        async with PostgresAdminStore.connect(database.dsn, TABLE) as admin_store:
            yield Yard(database.dsn, connection, admin_store)
    finally:
        await connection.close()


@asynccontextmanager
async def role(yard: Yard, part: str, name: str) -> AsyncIterator[PostgresAdminStore]:
    """The tools in the hands of a role that has one part's grants and nothing else."""
    await yard.connection.execute(f"CREATE ROLE {name}")
    try:
        await yard.connection.execute(schema.roles(TABLE, **{part: name}))
        settings = {"server_settings": {"role": name}}
        async with PostgresAdminStore.connect(yard.dsn, TABLE, connect=settings) as admin_store:
            yield admin_store
    finally:
        await yard.connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
