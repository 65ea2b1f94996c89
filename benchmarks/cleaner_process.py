"""A cleaner in a process of its own, for `benchmarks.cleaner`: one pass, and what each of its batches took."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field

from benchmarks.children import TABLE
from outbox_core.admin_store import CleanedBatch, Cleaning, CleaningBatch
from outbox_core.cleaner import Cleaner, CleanerSettings
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from outbox_core.table import TableName


@dataclass
class Timed:
    """Passes batches on and notes how many rows each deleted in how many seconds."""

    store: Cleaning
    batches: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    async def clean_published(self, table: TableName, batch: CleaningBatch) -> CleanedBatch:
        began = time.perf_counter()
        cleaned = await self.store.clean_published(table, batch)
        self.batches.append((cleaned.deleted, time.perf_counter() - began))
        return cleaned

    async def clean_dead(self, table: TableName, batch: CleaningBatch) -> CleanedBatch:
        return await self.store.clean_dead(table, batch)


async def main(dsn: str) -> None:
    async with PostgresAdminStore.connect(dsn, TABLE) as admin_store:
        store = Timed(admin_store)
        began = time.perf_counter()
        done = await Cleaner(store, TABLE, CleanerSettings(retention=3600)).clean()
        seconds = time.perf_counter() - began
    print(json.dumps({"rows": done.published, "seconds": seconds, "batches": store.batches}))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])["dsn"]))
