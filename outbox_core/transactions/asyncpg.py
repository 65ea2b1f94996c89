"""Enqueue on an asyncpg connection, also one acquired from a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outbox_core.transactions.postgres import PostgresTransaction

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy


class AsyncpgDriver:
    """asyncpg commits every statement by itself unless a transaction was begun."""

    __slots__ = ("_connection",)

    def __init__(self, connection: asyncpg.Connection | PoolConnectionProxy) -> None:
        self._connection = connection

    async def is_open(self) -> bool:
        return self._connection.is_in_transaction()

    async def fetch(self, statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        # A Record has every method of a sequence that is used here; its type says only that it is a mapping.
        rows: Sequence[Any] = await self._connection.fetch(statement, *parameters)
        return rows


def transaction(connection: asyncpg.Connection | PoolConnectionProxy) -> PostgresTransaction:
    """Adapt a connection; it stays the caller's."""
    return PostgresTransaction(AsyncpgDriver(connection))
