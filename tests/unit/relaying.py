"""What tests of a relay on the store in memory share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from outbox_core.message import Message
from outbox_core.observer import Event
from outbox_core.outbox import Outbox
from outbox_core.stores.memory.database import MemoryRow
from outbox_core.stores.memory.store import MemoryStore
from outbox_core.table import TableName

TABLE = TableName("public", "orders_outbox")
OTHER = TableName("public", "bills_outbox")
QUICK: dict[str, Any] = {
    "backoff_base": 0.02,
    "backoff_cap": 0.05,
    "backoff_jitter": 0.0,
    "poll_interval": 0.05,
    "dispatch_timeout": 0.2,
}
E = TypeVar("E", bound=Event)


class Heard:
    """Every event, in its order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event, /) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


async def put(store: MemoryStore, *messages: Message, table: TableName = TABLE) -> None:
    async with store.transaction() as tx:
        await Outbox(table).enqueue_many(tx, list(messages))


def rows(store: MemoryStore, topic: str = "", table: TableName = TABLE) -> list[MemoryRow]:
    """Those of one topic, or all."""
    return [row for row in store.table(table).rows.values() if row.record.topic == topic or not topic]


async def eventually(condition: Callable[[], object], within: float = 10.0) -> None:
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - of a relay, whose events not all tests can hear
            await asyncio.sleep(0.005)
