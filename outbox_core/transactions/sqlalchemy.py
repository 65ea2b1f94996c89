"""Enqueue on a SQLAlchemy asynchronous session or connection, on the asyncpg or the psycopg driver.

The dialect decides first: one that is not PostgreSQL goes to the adapter that an installed package declares for it.

Statements go through SQLAlchemy, not past it, because its drivers begin their transaction at the first statement that
SQLAlchemy itself runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from outbox_core.errors import UnsupportedTransaction
from outbox_core.extras import needs_extra
from outbox_core.transaction import adapter_of_dialect
from outbox_core.transactions.postgres import PostgresTransaction

with needs_extra("sqlalchemy", feature="enqueue on a SQLAlchemy session"):
    from sqlalchemy.exc import UnboundExecutionError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

if TYPE_CHECKING:
    from outbox_core.transaction import Transaction

_POSTGRES: Final = "postgresql"
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")


class SqlalchemyDriver:
    """SQLAlchemy begins a transaction by itself unless the isolation level is AUTOCOMMIT."""

    __slots__ = ("_source",)

    def __init__(self, source: AsyncSession | AsyncConnection) -> None:
        self._source = source

    async def is_open(self) -> bool:
        connection = await self._connection()
        raw = await connection.get_raw_connection()
        # In AUTOCOMMIT even `begin()` opens nothing in the database, so there is no exception to make.
        return not getattr(raw.dbapi_connection, "autocommit", False)

    async def fetch(self, statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        connection = await self._connection()
        match connection.dialect.driver:
            case "asyncpg":
                result = await connection.exec_driver_sql(statement, tuple(parameters))
            case "psycopg" | "psycopg_async":
                named = {f"p{number}": value for number, value in enumerate(parameters, start=1)}
                result = await connection.exec_driver_sql(_pyformat(statement), named)
            case other:
                raise UnsupportedTransaction(
                    f"cannot enqueue through SQLAlchemy's driver {connection.dialect.name}+{other}:"
                    " use postgresql+asyncpg or postgresql+psycopg"
                )
        return [tuple(row) for row in result.all()]

    async def _connection(self) -> AsyncConnection:
        if isinstance(self._source, AsyncSession):
            return await self._source.connection()
        return self._source


@cache
def _pyformat(statement: str) -> str:
    return _PLACEHOLDER.sub(r"%(p\1)s", statement.replace("%", "%%"))


def transaction(source: AsyncSession | AsyncConnection) -> Transaction:
    """Adapt a session or connection; it stays the caller's. Another package may declare the adapter of a dialect."""
    dialect = _dialect(source)
    foreign = None if dialect == _POSTGRES else adapter_of_dialect(dialect)
    return PostgresTransaction(SqlalchemyDriver(source)) if foreign is None else foreign(source)


def _dialect(source: AsyncSession | AsyncConnection) -> str:
    if isinstance(source, AsyncConnection):
        return source.sync_engine.dialect.name
    try:
        return source.get_bind().dialect.name
    except UnboundExecutionError:
        return _POSTGRES  # the first statement says that the session has no engine
