"""What tests of a relay on the store in memory share."""

from __future__ import annotations

from typing import Any

from outbox_core.message import Message
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


async def put(store: MemoryStore, *messages: Message, table: TableName = TABLE) -> None:
    async with store.transaction() as tx:
        await Outbox(table).enqueue_many(tx, list(messages))


def rows(store: MemoryStore, topic: str = "", table: TableName = TABLE) -> list[MemoryRow]:
    """Those of one topic, or all."""
    return [row for row in store.table(table).rows.values() if row.record.topic == topic or not topic]
