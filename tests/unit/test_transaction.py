"""Finding the adapter for what the caller has open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import asyncpg.pool
import asyncpg.transaction
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    AsyncSessionTransaction,
    AsyncTransaction,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

from outbox_core.errors import UnsupportedTransaction
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.stores.memory import MemoryStore
from outbox_core.transaction import adapt, adapter_of_dialect
from outbox_core.transactions.postgres import PostgresTransaction

ACCEPTED = (
    "expected an asyncpg Connection (also one acquired from a pool), a psycopg AsyncConnection,"
    " or a SQLAlchemy AsyncSession or AsyncConnection on asyncpg or psycopg"
)


@pytest.mark.parametrize("tx", [None, "postgresql://localhost", 7, object(), asyncpg])
def test_an_unknown_object_says_which_types_are_accepted(tx: object) -> None:
    with pytest.raises(UnsupportedTransaction) as refused:
        adapt(tx)
    name = f"{type(tx).__module__}.{type(tx).__qualname__}"
    assert str(refused.value) == f"cannot enqueue on {name}: {ACCEPTED}"
    assert isinstance(refused.value, TypeError)


def bare(kind: type[Any]) -> object:
    """An instance that was never connected to anything."""
    return kind.__new__(kind)


def test_near_misses_name_the_cure() -> None:
    engine = create_async_engine("postgresql+asyncpg://localhost/nowhere")
    plain = create_engine("postgresql+psycopg://localhost/nowhere")
    cures: list[tuple[object, str]] = [
        (engine, "pass the AsyncConnection of `async with engine.begin()` instead"),
        (async_sessionmaker(engine), "pass the AsyncSession of `async with maker.begin()` instead"),
        (plain, "use an AsyncEngine's connection: enqueue is asynchronous"),
        (Session(plain), "use an AsyncSession: enqueue is asynchronous"),
        (bare(psycopg.Connection), "use psycopg.AsyncConnection: enqueue is asynchronous"),
        (bare(psycopg.AsyncTransaction), "pass the transaction's connection instead"),
        (bare(asyncpg.pool.Pool), "acquire a connection from the pool"),
        (bare(asyncpg.pool.PoolAcquireContext), "`async with pool.acquire() as connection`"),
        (bare(asyncpg.transaction.Transaction), "pass the connection the transaction was begun on"),
        (bare(AsyncTransaction), "pass the AsyncConnection the transaction was begun on"),
        (bare(AsyncSessionTransaction), "pass the AsyncSession the transaction was begun on"),
        (bare(async_scoped_session), "call it: `scoped()`"),
    ]
    for tx, cure in cures:
        with pytest.raises(UnsupportedTransaction) as refused:
            adapt(tx)
        assert cure in str(refused.value)
        assert ACCEPTED in str(refused.value)


def test_a_subclass_is_found_too() -> None:
    class AuditedSession(AsyncSession):
        pass

    assert isinstance(adapt(AuditedSession()), PostgresTransaction)


@pytest.mark.asyncio
async def test_an_in_memory_transaction_is_its_own_adapter() -> None:
    async with MemoryStore().transaction() as tx:
        assert adapt(tx) is tx


@pytest.mark.asyncio
async def test_a_pool_is_refused_before_any_connection(unused_tcp_port: int) -> None:
    pool = asyncpg.create_pool(f"postgresql://127.0.0.1:{unused_tcp_port}/nowhere")
    with pytest.raises(UnsupportedTransaction, match="begin a transaction on it first"):
        await Outbox("orders_outbox").enqueue(pool, Message("a.b.v1", 1))


DECLARED = """
class Adapted:
    def __init__(self, tx): self.tx = tx
"""
Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution with these entry points where Python looks for installed ones."""

    def install(entries: str) -> None:
        (tmp_path / "outbox_fake_transactions.py").write_text(DECLARED)
        metadata = tmp_path / "outbox_fake_transactions-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: outbox-fake-transactions\nVersion: 1.0\n"
        )
        (metadata / "entry_points.txt").write_text(f"[outbox.transactions]\n{entries}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "outbox_fake_transactions", raising=False)
        adapter_of_dialect.cache_clear()

    yield install
    adapter_of_dialect.cache_clear()


class Foreign:
    """A connection that another package's adapter is for."""


def test_a_package_declares_the_adapter_of_a_class_and_its_subclasses(install: Install) -> None:
    class Audited(Foreign): ...

    install(f"{__name__}.Foreign = outbox_fake_transactions:Adapted")
    for tx in (Foreign(), Audited()):
        found: Any = adapt(tx)
        assert (type(found).__name__, found.tx) == ("Adapted", tx)
    with pytest.raises(UnsupportedTransaction) as refused:
        adapt(object())
    assert f"{ACCEPTED}, or a {__name__}.Foreign" in str(refused.value)


@pytest.mark.asyncio
async def test_the_dialect_of_sqlalchemy_decides_before_its_driver(install: Install) -> None:
    install("sqlalchemy+fake = outbox_fake_transactions:Adapted")
    engine = create_async_engine("postgresql+asyncpg://localhost/nowhere")
    connection, session = engine.connect(), AsyncSession(engine)
    assert isinstance(adapt(connection), PostgresTransaction)
    assert isinstance(adapt(session), PostgresTransaction)
    engine.dialect.name = "fake"
    for tx in (connection, session):
        found: Any = adapt(tx)
        assert (type(found).__name__, found.tx) == ("Adapted", tx)
    engine.dialect.name = "unknown"
    assert isinstance(adapt(session), PostgresTransaction)  # which refuses it at the first statement


def test_no_driver_is_imported_for_the_search() -> None:
    program = """
import sys
from outbox_core.outbox import Outbox
from outbox_core.transaction import adapt, adapter_of_dialect
try:
    adapt(object())
except TypeError:
    pass
loaded = {"psycopg", "sqlalchemy", "opentelemetry"} & set(sys.modules)
assert not loaded, loaded
"""
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert completed.returncode == 0, completed.stderr
