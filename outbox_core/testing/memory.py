"""An outbox for unit tests: no database, no broker, and the assertions a test wants to make."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack
from uuid import UUID

from outbox_core.encoding import encode_json
from outbox_core.errors import UnsupportedTransaction
from outbox_core.integrations.bound import BoundOutbox
from outbox_core.outbox import DEFAULT_MAX_BYTES, Outbox
from outbox_core.record import State, StoredMessage
from outbox_core.relay import Relay
from outbox_core.stores.memory import MemoryStore, MemoryTransaction
from outbox_core.testing.clock import VirtualClock
from outbox_core.testing.expectation import Conditions, refuse, require, select
from outbox_core.testing.messages import SeenMessage, of_row
from outbox_core.testing.recording import RecordingDispatcher
from outbox_core.transaction import adapt

if TYPE_CHECKING:
    from outbox_core.message import Message
    from outbox_core.observer import Observer
    from outbox_core.table import TableName
    from outbox_core.topic import TopicPattern

_DRIVERS: Final = frozenset({"asyncpg", "builtins", "psycopg", "psycopg_pool", "sqlalchemy"})
"""Where an object comes from that is a mistake instead of a double of a connection: a pool, an engine, None."""

_STEADY: Final[dict[str, Any]] = {"backoff_jitter": 0.0}


T = TypeVar("T")


class _Bound(BoundOutbox[T]):
    """Shows a double as the request's transaction, and writes into one that can be rolled back."""

    __slots__ = ("_transaction",)

    def __init__(self, outbox: Outbox, tx: T, transaction: MemoryTransaction) -> None:
        super().__init__(outbox, tx)
        self._transaction = transaction

    def _writes_on(self) -> object:
        return self._transaction


class MemoryOutbox(Outbox):
    """Stands in for an `Outbox` in unit tests, and remembers::

        outbox = MemoryOutbox()
        async with outbox.transaction() as tx:
            await place_order(tx, outbox)
        outbox.assert_enqueued("shop.order.placed.v1", payload=matching(order=7))

    Messages are checked and encoded as in production. In a transaction of its own, what the block raises out of leaves
    nothing. Any other object is accepted as a transaction too, so that a mock of a session will do; there it cannot
    see a rollback, and every message counts as committed at once: test rollbacks of your own code on a database.
    Drivers' objects that `Outbox` refuses, such as a pool or a connection outside a transaction, are refused here too.

    `drain` delivers to ``dispatcher``, a `RecordingDispatcher`. Time is ``clock``'s, which only the test moves.
    """

    def __init__(
        self,
        table: str | TableName = "outbox",
        *,
        clock: VirtualClock | None = None,
        dispatcher: RecordingDispatcher | None = None,
        encode: Callable[[object], str] = encode_json,
        max_bytes: int = DEFAULT_MAX_BYTES,
        strict_topics: bool = False,
        observers: Sequence[Observer] = (),
    ) -> None:
        super().__init__(
            table, encode=encode, max_bytes=max_bytes, strict_topics=strict_topics, observers=observers
        )
        self.clock = VirtualClock() if clock is None else clock
        self.dispatcher = RecordingDispatcher() if dispatcher is None else dispatcher
        self.store = MemoryStore(self.clock)

    def transaction(self) -> AbstractAsyncContextManager[MemoryTransaction]:
        """Begin; commit at the end of the block, or roll back when it raises."""
        return self.store.transaction()

    @asynccontextmanager
    async def bound(self, tx: T) -> AsyncGenerator[BoundOutbox[T]]:
        """What a request gets from a web integration, with ``tx``, a double of a session, in place of a real one.

        What it enqueues is there when the block ends, and gone when the block raises.
        """
        async with self.transaction() as transaction:
            binding = _Bound(self, tx, transaction)
            try:
                yield binding
            finally:
                binding.end()

    async def enqueue(
        self, tx: object, message: Message, *, serialize_key: bool = False, allow_autocommit: bool = False
    ) -> int:
        """As `Outbox.enqueue`, in memory."""
        if isinstance(tx, MemoryTransaction):
            return await super().enqueue(
                tx, message, serialize_key=serialize_key, allow_autocommit=allow_autocommit
            )
        await self._check(tx, allow_autocommit)
        async with self.transaction() as own:
            return await super().enqueue(own, message, serialize_key=serialize_key)

    async def enqueue_many(
        self,
        tx: object,
        messages: Iterable[Message],
        *,
        serialize_key: bool = False,
        allow_autocommit: bool = False,
    ) -> list[int]:
        """As `Outbox.enqueue_many`, in memory."""
        if isinstance(tx, MemoryTransaction):
            return await super().enqueue_many(
                tx, messages, serialize_key=serialize_key, allow_autocommit=allow_autocommit
            )
        await self._check(tx, allow_autocommit)
        async with self.transaction() as own:
            return await super().enqueue_many(own, messages, serialize_key=serialize_key)

    async def get(self, tx: object, event_id: UUID, *, payload: bool = False) -> StoredMessage | None:
        """As `Outbox.get`, in memory."""
        if isinstance(tx, MemoryTransaction):
            return await super().get(tx, event_id, payload=payload)
        async with self.transaction() as own:
            return await super().get(own, event_id, payload=payload)

    async def count(
        self, tx: object, *, tenant_id: UUID | None = None, state: State | str | None = None
    ) -> int:
        """As `Outbox.count`, in memory."""
        if isinstance(tx, MemoryTransaction):
            return await super().count(tx, tenant_id=tenant_id, state=state)
        async with self.transaction() as own:
            return await super().count(own, tenant_id=tenant_id, state=state)

    async def pending(
        self, tx: object, *, tenant_id: UUID | None = None, limit: int = 100, payload: bool = False
    ) -> list[StoredMessage]:
        """As `Outbox.pending`, in memory."""
        if isinstance(tx, MemoryTransaction):
            return await super().pending(tx, tenant_id=tenant_id, limit=limit, payload=payload)
        async with self.transaction() as own:
            return await super().pending(own, tenant_id=tenant_id, limit=limit, payload=payload)

    async def drain(self, *, timeout: float = 10.0, **settings: Any) -> list[SeenMessage]:
        """Deliver what is due by ``clock`` to ``dispatcher``, and return what it acknowledged this time, in order.

        A real relay does it, with ``settings`` of `RelaySettings`. What fails backs off by the same clock, from 1 s and
        without jitter: advance it and drain again.
        """
        before = len(self.dispatcher.acknowledged)
        relay = Relay(
            self.store.connect,
            table=self.table,
            dispatcher=self.dispatcher,
            cleaner=None,
            **(_STEADY | settings),
        )
        await relay.drain(timeout=timeout)
        return self.dispatcher.published()[before:]

    def enqueued(
        self, topic: str | TopicPattern = "**", **conditions: Unpack[Conditions]
    ) -> list[SeenMessage]:
        """The committed messages of a topic pattern, by sequence, whatever became of them since."""
        return select(self._seen(), topic, **conditions)

    def published(
        self, topic: str | TopicPattern = "**", **conditions: Unpack[Conditions]
    ) -> list[SeenMessage]:
        """Those of the `enqueued` that `drain` has delivered."""
        return select(self._seen(State.PUBLISHED), topic, **conditions)

    def dead(self, topic: str | TopicPattern = "**", **conditions: Unpack[Conditions]) -> list[SeenMessage]:
        """Those of the `enqueued` that were given up."""
        return select(self._seen(State.DEAD), topic, **conditions)

    def assert_enqueued(
        self, topic: str | TopicPattern = "**", *, times: int | None = 1, **conditions: Unpack[Conditions]
    ) -> SeenMessage:
        """Exactly ``times`` such messages were committed, or any number of them when it is None; returns the first."""
        return require(self._seen(), "enqueued", topic, times, **conditions)

    def assert_not_enqueued(self, topic: str | TopicPattern = "**", **conditions: Unpack[Conditions]) -> None:
        """No such message was committed; none at all when nothing is said."""
        refuse(self._seen(), "enqueued", topic, **conditions)

    def assert_published(
        self, topic: str | TopicPattern = "**", *, times: int | None = 1, **conditions: Unpack[Conditions]
    ) -> SeenMessage:
        """Exactly ``times`` such messages were delivered, or any number of them when it is None; returns the first."""
        return require(self._seen(State.PUBLISHED), "published", topic, times, **conditions)

    def clear(self) -> None:
        """Forget every message. Sequences go on, as in a table."""
        self.store.table(self.table).rows.clear()
        self.dispatcher.clear()

    def _seen(self, state: State | None = None) -> list[SeenMessage]:
        rows = sorted(self.store.table(self.table).rows.values(), key=lambda row: row.sequence)
        return [of_row(row) for row in rows if state is None or row.state is state]

    async def _check(self, tx: object, allow_autocommit: bool) -> None:
        try:
            transaction = adapt(tx)
        except UnsupportedTransaction:
            if type(tx).__module__.partition(".")[0] in _DRIVERS:
                raise
            return
        if not allow_autocommit and not await transaction.is_open():
            raise self._not_in_transaction()
