"""Messages kept in memory, with real transaction semantics: the reference for the contracts and for unit tests.

    store = MemoryStore()
    async with store.transaction() as tx:
        await outbox.enqueue(tx, message)
    await Relay(lambda: store, table="orders_outbox", dispatcher=publish).drain()

Everything lives in this process and ends with it. Use one store on one event loop.
"""

from __future__ import annotations

from outbox_core.stores.memory.database import MemoryRow, MemoryTable
from outbox_core.stores.memory.store import MemoryStore
from outbox_core.stores.memory.transaction import MemoryTransaction, transaction

__all__ = ["MemoryRow", "MemoryStore", "MemoryTable", "MemoryTransaction", "transaction"]
