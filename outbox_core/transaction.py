"""The contract between `Outbox` and a transaction the caller has open, and how one is found for an object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, Protocol

from outbox_core.errors import UnsupportedTransaction

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_core.record import Existing, NewRecord, State, StoredMessage
    from outbox_core.store import KeyId
    from outbox_core.table import TableName


class Transaction(Protocol):
    """An open transaction, as an outbox uses it.

    Nothing here commits, rolls back, opens a connection or changes a session setting. Not safe for concurrent use:
    neither is the connection behind it.
    """

    async def is_open(self) -> bool:
        """Say whether a write made now waits for a commit that is still to come. May begin the driver's own implicit
        transaction, never ends one. Raises `TransactionError` when the connection is closed."""
        ...

    async def insert(
        self, table: TableName, records: Sequence[NewRecord], *, serialize: Sequence[KeyId], hint: bool
    ) -> list[int] | None:
        """Write the records in one step and return their sequences in input order, increasing.

        None when at least one ``event_id`` was there already; the others may or may not be written then. The writers of
        a key in ``serialize`` wait for each other's commits before a sequence is drawn. The store decides how, and sees
        to it that batches never wait for each other in a circle. With ``hint`` relays are notified at commit, also
        after None; a store that cannot notify them does nothing. ``created_at`` is not after ``available_at``, and is
        the start of the transaction where the store knows it.
        """
        ...

    async def existing(self, table: TableName, event_ids: Sequence[UUID]) -> list[Existing]:
        """Read the rows that have these ids, as they are at this call where the isolation level allows it."""
        ...

    async def get(self, table: TableName, event_id: UUID, *, payload: bool) -> StoredMessage | None:
        """Read one message by its id."""
        ...

    async def count(self, table: TableName, *, tenant_id: UUID | None, state: State | None) -> int:
        """Count rows, of one tenant or all, in one state or all."""
        ...

    async def pending(
        self, table: TableName, *, tenant_id: UUID | None, limit: int, payload: bool
    ) -> list[StoredMessage]:
        """List messages neither published nor dead: in the order of claims, or of one tenant's sequences."""
        ...


ENTRY_POINTS: Final = "outbox.transactions"

_ADAPTERS: Final[dict[tuple[str, str], str]] = {
    ("asyncpg.connection", "Connection"): "outbox_core.transactions.asyncpg",
    ("asyncpg.pool", "PoolConnectionProxy"): "outbox_core.transactions.asyncpg",
    ("psycopg", "AsyncConnection"): "outbox_core.transactions.psycopg",
    ("sqlalchemy.ext.asyncio", "AsyncConnection"): "outbox_core.transactions.sqlalchemy",
    ("sqlalchemy.ext.asyncio", "AsyncSession"): "outbox_core.transactions.sqlalchemy",
    ("outbox_core.stores.memory", "MemoryTransaction"): "outbox_core.stores.memory",
}

_MISTAKES: Final[dict[tuple[str, str], str]] = {
    ("asyncpg.pool", "Pool"): "acquire a connection from the pool and begin a transaction on it first",
    (
        "asyncpg.pool",
        "PoolAcquireContext",
    ): "pass the connection of `async with pool.acquire() as connection` instead",
    ("asyncpg.transaction", "Transaction"): "pass the connection the transaction was begun on instead",
    (
        "sqlalchemy.ext.asyncio",
        "AsyncEngine",
    ): "pass the AsyncConnection of `async with engine.begin()` instead",
    (
        "sqlalchemy.ext.asyncio",
        "async_sessionmaker",
    ): "pass the AsyncSession of `async with maker.begin()` instead",
    (
        "sqlalchemy.ext.asyncio",
        "AsyncTransaction",
    ): "pass the AsyncConnection the transaction was begun on instead",
    (
        "sqlalchemy.ext.asyncio",
        "AsyncSessionTransaction",
    ): "pass the AsyncSession the transaction was begun on instead",
    ("sqlalchemy.ext.asyncio", "async_scoped_session"): "call it: `scoped()` is the AsyncSession to pass",
    ("sqlalchemy.orm", "Session"): "use an AsyncSession: enqueue is asynchronous",
    ("sqlalchemy", "Connection"): "use an AsyncConnection: enqueue is asynchronous",
    ("sqlalchemy", "Engine"): "use an AsyncEngine's connection: enqueue is asynchronous",
    ("psycopg", "Connection"): "use psycopg.AsyncConnection: enqueue is asynchronous",
    ("psycopg", "AsyncCursor"): "pass the cursor's connection instead",
    ("psycopg", "AsyncTransaction"): "pass the transaction's connection instead",
}

_ACCEPTED: Final = (
    "an asyncpg Connection (also one acquired from a pool), a psycopg AsyncConnection,"
    " or a SQLAlchemy AsyncSession or AsyncConnection on asyncpg or psycopg"
)

_found: Final[dict[type[Any], Callable[[Any], Transaction]]] = {}


def adapt(tx: object) -> Transaction:
    """Find the adapter for what the caller has open, importing no driver that the caller has not imported.

    A package adds a kind by an entry point of the group ``outbox.transactions``: its name is the class with its module,
    such as ``asyncmy.connection.Connection``, its object a function that takes the open transaction and returns a
    `Transaction`. One named ``sqlalchemy+mysql`` gets the sessions and connections of that dialect of SQLAlchemy's.
    """
    kind: type[Any] = type(tx)
    adapter = _found.get(kind)
    if adapter is None:
        adapter = _found[kind] = _adapter_of(kind)
    return adapter(tx)


def _adapter_of(kind: type) -> Callable[[Any], Transaction]:
    for (module, name), adapter in _ADAPTERS.items():
        if _is_subclass(kind, module, name):
            transaction: Callable[[Any], Transaction] = import_module(adapter).transaction
            return transaction
    declared = entry_points(group=ENTRY_POINTS)
    for entry in declared:
        module, _, name = entry.name.rpartition(".")
        if _is_subclass(kind, module, name):
            return _loaded(entry)
    hint = next(
        (f"; {cure}" for (module, name), cure in _MISTAKES.items() if _is_subclass(kind, module, name)), ""
    )
    others = "".join(f", or a {entry.name}" for entry in declared if "+" not in entry.name)
    raise UnsupportedTransaction(
        f"cannot enqueue on {kind.__module__}.{kind.__qualname__}: expected {_ACCEPTED}{others}{hint}"
    )


@cache
def adapter_of_dialect(dialect: str) -> Callable[[Any], Transaction] | None:
    """Return the adapter that an installed package declares for a dialect of SQLAlchemy's, such as ``mysql``."""
    found = entry_points(group=ENTRY_POINTS, name=f"sqlalchemy+{dialect}")
    return next(map(_loaded, found), None)


def _loaded(entry: EntryPoint) -> Callable[[Any], Transaction]:
    adapter: Callable[[Any], Transaction] = entry.load()
    return adapter


def _is_subclass(kind: type, module: str, name: str) -> bool:
    known = getattr(sys.modules.get(module), name, None)
    return isinstance(known, type) and issubclass(kind, known)
