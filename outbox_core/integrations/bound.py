"""An outbox together with the transaction of one request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from outbox_core.errors import NotInTransaction

if TYPE_CHECKING:
    import asyncpg

    from outbox_core.message import Message
    from outbox_core.outbox import Outbox

T = TypeVar("T")

Begin: TypeAlias = Callable[[], AbstractAsyncContextManager[T]]
"""Opens a transaction that commits at the end of its block and rolls back when the block raises: SQLAlchemy's
``sessions.begin`` and ``engine.begin``, psycopg's ``pool.connection``, `begin_on` for an asyncpg pool."""


class BoundOutbox(Generic[T]):
    """Enqueues in the transaction ``tx`` of one request, and only while that is open.

    It neither commits nor closes anything, and is as little safe for concurrent use as ``tx`` itself. It is of no use
    to background tasks and to what streams a response: they run when the transaction has ended, and where it knows of
    that end it raises `NotInTransaction` instead of writing what nobody would commit.
    """

    __slots__ = ("_ended", "outbox", "tx")

    def __init__(self, outbox: Outbox, tx: T) -> None:
        self.outbox = outbox
        self.tx = tx
        self._ended = False

    async def enqueue(self, message: Message, *, serialize_key: bool = False) -> int:
        """Write one message; see `Outbox.enqueue`."""
        self._check()
        return await self.outbox.enqueue(self._writes_on(), message, serialize_key=serialize_key)

    async def enqueue_many(self, messages: Iterable[Message], *, serialize_key: bool = False) -> list[int]:
        """Write many messages; see `Outbox.enqueue_many`."""
        self._check()
        return await self.outbox.enqueue_many(self._writes_on(), messages, serialize_key=serialize_key)

    def end(self) -> None:
        """Enqueue no more: the transaction is about to end."""
        self._ended = True

    def _writes_on(self) -> object:
        """The transaction that messages are written in; another than ``tx`` where that is a double."""
        return self.tx

    def _check(self) -> None:
        if self._ended:
            raise NotInTransaction(
                f"cannot enqueue into {self.outbox.table}: the transaction of this request has ended. A background task"
                " or a streamed response needs a transaction of its own: `async with bound(outbox, begin)`"
            )


@asynccontextmanager
async def bound(outbox: Outbox, begin: Begin[T]) -> AsyncGenerator[BoundOutbox[T]]:
    """Open a transaction and bind the outbox to it: both commit at the end of the block, or neither::

        async with bound(outbox, sessions.begin) as orders:
            orders.tx.add(Order(...))
            await orders.enqueue(Message("shop.order.placed.v1", {"order": 7}))

    What the block raises rolls both back.
    """
    async with begin() as tx:
        binding = BoundOutbox(outbox, tx)
        try:
            yield binding
        finally:
            binding.end()


def begin_on(
    pool: asyncpg.Pool[Any] | Callable[[], asyncpg.Pool[Any]], *, timeout: float = 10.0
) -> Begin[Any]:
    """What `bound` takes, for an asyncpg pool: a connection within ``timeout`` seconds, and a transaction on it.

    A pool belongs to an event loop, so an application opens it in its lifespan; where it is not there yet, give a
    function that is asked for it at each transaction: ``begin_on(lambda: app.state.pool)``.
    """

    @asynccontextmanager
    async def begin() -> AsyncGenerator[Any]:
        opened = pool() if callable(pool) else pool
        async with opened.acquire(timeout=timeout) as connection, connection.transaction():
            yield connection

    return begin
