"""PostgreSQL keeps the contract through every kind of ``tx``, whatever the application did to its connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import psycopg
import pytest
import pytest_asyncio

from outbox_core.errors import NotInTransaction, SchemaError, TransactionError
from outbox_core.outbox import Outbox
from tests.contract.concurrency import ConcurrencyContract
from tests.contract.conftest import ContractDatabase
from tests.contract.idempotence import IdempotenceContract
from tests.contract.reading import ReadingContract
from tests.contract.sessions import (
    TABLE,
    AsyncpgSessions,
    Interrupted,
    PoolSessions,
    PostgresSessions,
    PsycopgSessions,
    SqlalchemySessions,
    interrupted,
)
from tests.contract.writing import AutocommitContract, WritingContract, message

pytestmark = pytest.mark.asyncio(loop_scope="module")

Kind = Callable[[ContractDatabase, AsyncpgSessions], PostgresSessions]

_SHADOWED = {"search_path": "shadow,pg_catalog"}

KINDS: dict[str, Kind] = {
    "asyncpg": lambda db, admin: AsyncpgSessions(db.dsn, admin),
    "asyncpg pool": lambda db, admin: PoolSessions(db.dsn, admin),
    "psycopg": lambda db, admin: PsycopgSessions(db.dsn, admin),
    "sqlalchemy connection, asyncpg": lambda db, admin: SqlalchemySessions(db.dsn, admin),
    "sqlalchemy session, asyncpg": lambda db, admin: SqlalchemySessions(db.dsn, admin, session=True),
    "sqlalchemy connection, psycopg": lambda db, admin: SqlalchemySessions(db.dsn, admin, driver="psycopg"),
    "sqlalchemy session, psycopg": lambda db, admin: SqlalchemySessions(
        db.dsn, admin, driver="psycopg", session=True
    ),
    "asyncpg codecs": lambda db, admin: AsyncpgSessions(db.dsn, admin, codecs=True),
    "psycopg dict_row": lambda db, admin: PsycopgSessions(db.dsn, admin, dictionaries=True),
    "psycopg pipeline": lambda db, admin: PsycopgSessions(db.dsn, admin, pipeline=True),
    "asyncpg search_path": lambda db, admin: AsyncpgSessions(db.dsn, admin, settings=_SHADOWED),
    "psycopg search_path": lambda db, admin: PsycopgSessions(db.dsn, admin, settings=_SHADOWED),
    "sqlalchemy search_path": lambda db, admin: SqlalchemySessions(
        db.dsn, admin, settings=_SHADOWED, session=True
    ),
    "asyncpg repeatable read": lambda db, admin: AsyncpgSessions(db.dsn, admin, isolation="repeatable_read"),
    "asyncpg serializable": lambda db, admin: AsyncpgSessions(db.dsn, admin, isolation="serializable"),
    "psycopg repeatable read": lambda db, admin: PsycopgSessions(db.dsn, admin, isolation="repeatable_read"),
    "psycopg serializable": lambda db, admin: PsycopgSessions(db.dsn, admin, isolation="serializable"),
    "sqlalchemy serializable": lambda db, admin: SqlalchemySessions(
        db.dsn, admin, isolation="serializable", session=True
    ),
}

PRODUCERS: dict[str, Kind] = {
    "asyncpg producer": lambda db, admin: AsyncpgSessions(db.dsn, admin, settings={"role": db.producer}),
    "psycopg producer": lambda db, admin: PsycopgSessions(db.dsn, admin, settings={"role": db.producer}),
    "sqlalchemy producer": lambda db, admin: SqlalchemySessions(
        db.dsn, admin, settings={"role": db.producer}
    ),
}

ON_EVERY_VERSION = {
    "asyncpg",
    "psycopg",
    "sqlalchemy session, asyncpg",
    "asyncpg serializable",
    "asyncpg producer",
}
"""What servers of other versions are shown: they tell neither drivers nor settings of the client apart."""


def _parameters(kinds: dict[str, Kind]) -> list[Any]:
    return [
        pytest.param(kind, id=name, marks=[pytest.mark.store] if name in ON_EVERY_VERSION else [])
        for name, kind in kinds.items()
    ]


every_kind = pytest.mark.parametrize("kind", _parameters(KINDS))
every_writer = pytest.mark.parametrize("kind", _parameters(KINDS | PRODUCERS))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(contract_database: ContractDatabase) -> AsyncIterator[dict[Kind, PostgresSessions]]:
    """The sessions of each kind, kept from test to test with their connections."""
    admin = AsyncpgSessions(contract_database.dsn)
    every = [*KINDS.values(), *PRODUCERS.values()]
    opened = {kind: kind(contract_database, admin) for kind in every}
    yield opened
    for sessions in (*opened.values(), admin):
        await sessions.close()


@pytest_asyncio.fixture(loop_scope="module")
async def sessions(kind: Kind, opened: dict[Kind, PostgresSessions]) -> PostgresSessions:
    sessions = opened[kind]
    await sessions.observer.ask("DELETE FROM shop.orders_outbox")
    return sessions


@every_writer
class TestWriting(WritingContract, AutocommitContract): ...


@every_writer
class TestIdempotence(IdempotenceContract): ...


@every_writer
class TestConcurrency(ConcurrencyContract): ...


@every_kind
class TestReading(ReadingContract): ...


async def test_a_closed_asyncpg_connection_is_said_to_be_closed(contract_database: ContractDatabase) -> None:
    connection = await asyncpg.connect(contract_database.dsn)
    await connection.close()
    with pytest.raises(TransactionError, match="the asyncpg connection is closed") as refused:
        await Outbox(TABLE).enqueue(connection, message())
    assert not isinstance(refused.value, NotInTransaction)
    assert "allow_autocommit" not in str(refused.value)


@pytest.mark.parametrize("autocommit", [False, True])
async def test_a_closed_psycopg_connection_is_said_to_be_closed(
    contract_database: ContractDatabase, autocommit: bool
) -> None:
    connection = await psycopg.AsyncConnection.connect(contract_database.dsn, autocommit=autocommit)
    await connection.close()
    with pytest.raises(TransactionError, match="the psycopg connection is closed") as refused:
        await Outbox(TABLE).enqueue(connection, message())
    assert not isinstance(refused.value, NotInTransaction)


@pytest.mark.parametrize("kind", _parameters({"asyncpg": KINDS["asyncpg"]}))
async def test_a_missing_column_points_to_the_verification(sessions: PostgresSessions) -> None:
    async with interrupted(), sessions.begin() as tx:
        await tx.execute("ALTER TABLE shop.orders_outbox RENAME COLUMN topic TO subject")
        with pytest.raises(SchemaError) as refused:
            await Outbox(TABLE).enqueue(tx, message())
        assert isinstance(refused.value.__cause__, asyncpg.UndefinedColumnError)
        raise Interrupted
    assert str(refused.value) == (
        "shop.orders_outbox: a column that this library works with is not there. See what differs with"
        " `await outbox_core.schema.verify(connection, 'shop.orders_outbox')`"
    )
