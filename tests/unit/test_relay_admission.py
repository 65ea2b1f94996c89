"""A batch is admitted while the next one is claimed: whichever of the two fails, nothing waits for a lease to end."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from outbox_core.errors import StorageUnavailable
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.store import Claim, KeyId, Predecessor, Row, Span
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName

TABLE = TableName("public", "orders_outbox")
MESSAGES, KEYS = 120, 7
SECONDS = 15.0
"""Far less than a lease, far more than a relay needs."""


class Store(MemoryStore):
    """Claims are quicker than looks at the order, and one of either fails once while the other is under way."""

    def __init__(self, fails: str | None = None) -> None:
        super().__init__()
        self._fails = fails
        self.begun = asyncio.Event()
        self.beside = 0
        self.failed = 0

    def connect(self) -> Store:
        return self

    async def close(self) -> None:
        pass

    async def claim(self, table: TableName, claim: Claim) -> list[Row]:
        await asyncio.sleep(0.002)
        if self._fails == "claim" and self.beside == 1 and not self.failed:
            self.failed += 1
            raise StorageUnavailable("the claim's answer was lost")
        return await super().claim(table, claim)

    async def predecessors(
        self, table: TableName, claim: Claim, spans: Sequence[Span], *, dead_too: bool
    ) -> dict[KeyId, Predecessor]:
        if claim.beside is not None:
            self.beside += 1
            self.begun.set()
            await asyncio.sleep(0.02)
            if self._fails == "predecessors" and not self.failed:
                self.failed += 1
                raise StorageUnavailable("nobody looked")
        return await super().predecessors(table, claim, spans, dead_too=dead_too)


async def write(store: Store) -> None:
    async with store.transaction() as tx:
        for number in range(MESSAGES):
            await Outbox(TABLE).enqueue(tx, Message("a.b.v1", number, key=f"k{number % KEYS}"))


@pytest.mark.asyncio
@pytest.mark.parametrize("fails", [None, "claim", "predecessors"])
async def test_everything_is_delivered_once_and_in_order(fails: str | None) -> None:
    store, seen, done = Store(fails), defaultdict[str | None, list[Any]](list), asyncio.Event()

    async def deliver(message: DispatchedMessage) -> None:
        seen[message.meta.key].append((message.json(), message.meta.attempts))
        if sum(map(len, seen.values())) == MESSAGES:
            done.set()

    await write(store)
    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, batch_size=10, backoff_base=0.01)
    async with asyncio.timeout(SECONDS), relay:
        await done.wait()
    assert store.beside > 1
    assert store.failed == (fails is not None)
    for key, delivered in seen.items():
        numbers = range(int(str(key)[1:]), MESSAGES, KEYS)
        assert delivered == [(number, 1) for number in numbers]


@pytest.mark.asyncio
async def test_a_stop_in_the_middle_gives_everything_back() -> None:
    store = Store()

    async def hang(_: DispatchedMessage) -> None:
        await asyncio.Event().wait()

    await write(store)
    relay = Relay(store.connect, table=TABLE, dispatcher=hang, batch_size=10, dispatch_timeout=1.0)
    async with asyncio.timeout(SECONDS):
        async with relay:
            await store.begun.wait()
            await relay.stop(0.2)
    rows = store.table(TABLE).rows.values()
    assert all(row.lock_token is None for row in rows)
    assert sum(row.attempts for row in rows) <= KEYS  # of those that were with the dispatcher
