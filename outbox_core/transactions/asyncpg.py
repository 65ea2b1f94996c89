"""Enqueue on an asyncpg connection, also one acquired from a pool."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from outbox_core.transactions.postgres import PostgresTransaction, closed

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy


class AsyncpgDriver:
    """asyncpg commits every statement by itself unless a transaction was begun."""

    __slots__ = ("_connection",)

    def __init__(self, connection: asyncpg.Connection | PoolConnectionProxy) -> None:
        self._connection = connection

    async def is_open(self) -> bool:
        if self._connection.is_closed():
            raise closed("asyncpg")
        return self._connection.is_in_transaction()

    def fetch(
        self, statement: str, parameters: Sequence[object]
    ) -> Coroutine[Any, Any, Sequence[Sequence[Any]]]:
        # Records are read by position, as the sequences they are; their type does not say so.
        return cast(
            "Coroutine[Any, Any, Sequence[Sequence[Any]]]", self._connection.fetch(statement, *parameters)
        )


def transaction(connection: asyncpg.Connection | PoolConnectionProxy) -> PostgresTransaction:
    """Adapt a connection; it stays the caller's."""
    return PostgresTransaction(AsyncpgDriver(connection))
