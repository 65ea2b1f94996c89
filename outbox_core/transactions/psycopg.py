"""Enqueue on a psycopg 3 asynchronous connection, in pipeline mode too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outbox_core.extras import needs_extra
from outbox_core.transactions.postgres import PostgresTransaction, closed

with needs_extra("psycopg", feature="enqueue on a psycopg connection"):
    from psycopg import AsyncRawCursor
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row

if TYPE_CHECKING:
    from psycopg import AsyncConnection


class PsycopgDriver:
    """psycopg begins a transaction by itself before the first statement, unless the connection is in autocommit."""

    __slots__ = ("_connection",)

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    async def is_open(self) -> bool:
        if self._connection.closed:
            raise closed("psycopg")
        if not self._connection.autocommit:
            return True
        if self._connection.info.transaction_status is TransactionStatus.ACTIVE:
            # Statements are queued in a pipeline, perhaps a BEGIN among them: entering it again waits for them all.
            async with self._connection.pipeline():
                pass
        return self._connection.info.transaction_status is not TransactionStatus.IDLE

    async def fetch(self, statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        # A raw cursor takes PostgreSQL's own $n placeholders; cursor and row factories of the connection do not apply.
        async with AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.encode(), parameters)
            return await cursor.fetchall()


def transaction(connection: AsyncConnection[Any]) -> PostgresTransaction:
    """Adapt a connection; it stays the caller's."""
    return PostgresTransaction(PsycopgDriver(connection))
