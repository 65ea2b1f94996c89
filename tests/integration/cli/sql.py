"""SQL beside the command: to prepare what it finds, and to see what it did."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import sql

TABLE = "shop.orders_outbox"
OTHER = "shop.invoices_outbox"

_ADD: LiteralString = """
    INSERT INTO shop.orders_outbox (
        tenant_id, topic, event_id, digest, payload, key, created_at, available_at, published_at,
        dead_at, last_error, attempts
    )
    SELECT '00000000-0000-0000-0000-000000000000', 'shop.order.placed.v1', gen_random_uuid(),
        decode(repeat('00', 32), 'hex'), '{"secret": "canary"}', %(key)s, now() - make_interval(secs => %(age)s),
        now() - make_interval(secs => %(age)s),
        CASE WHEN %(state)s = 'published' THEN now() - make_interval(secs => %(age)s) END,
        CASE WHEN %(state)s = 'dead' THEN now() - make_interval(secs => %(age)s) END,
        CASE WHEN %(state)s = 'dead' THEN %(error)s END,
        CASE WHEN %(state)s = 'dead' THEN 25 ELSE 0 END
    FROM generate_series(1, %(count)s)
"""


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def fetch(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def published(dsn: str, table: str = TABLE) -> int:
    """How many messages of a table are published."""
    statement = sql.SQL("SELECT count(*) FROM {} WHERE published_at IS NOT NULL")
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(statement.format(sql.Identifier(*table.split(".")))).fetchone()
    assert row is not None
    return int(row[0])


def add(
    dsn: str,
    state: str,
    count: int = 1,
    *,
    age: float = 100.0,
    key: str | None = None,
    error: str = "TX.TIMEOUT no answer",
) -> None:
    """Rows that have been in a state for ``age`` seconds."""
    values = {"state": state, "count": count, "age": age, "key": key, "error": error}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_ADD, values)


def states(dsn: str) -> dict[str, int]:
    rows = fetch(
        dsn,
        "SELECT CASE WHEN dead_at IS NOT NULL THEN 'dead' WHEN published_at IS NOT NULL THEN 'published'"
        " ELSE 'pending' END, count(*) FROM shop.orders_outbox GROUP BY 1",
    )
    return {str(state): int(count) for state, count in rows}
