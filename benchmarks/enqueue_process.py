"""What a writer does for a message before the driver has it, over and over.

    python -m benchmarks.enqueue_process '{"what": "build", "rows": 1000}'

``"build"`` makes Messages, ``"enqueue"`` enqueues one that is ready, ``"insert"`` does what stands for a hand-written
INSERT in the benchmark of writing. The connection answers at once.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import asyncpg

from benchmarks.children import TABLE
from benchmarks.enqueue import by_hand, message
from outbox_core.outbox import Outbox


class AtOnce(asyncpg.Connection):
    """In a transaction, without a server: every statement returns one row."""

    def __init__(self) -> None:
        self._protocol = None

    def is_closed(self) -> bool:
        return False

    def is_in_transaction(self) -> bool:
        return True

    async def fetch(self, *_: Any, **__: Any) -> Any:
        return [(1, 1)]

    async def fetchrow(self, *_: Any, **__: Any) -> Any:
        return (1, 1)


async def write(what: str, rows: int) -> None:
    connection, outbox, ready = AtOnce(), Outbox(TABLE, hint=False), message()
    for _ in range(rows):
        match what:
            case "build":
                message()
            case "enqueue":
                await outbox.enqueue(connection, ready)
            case "insert":
                await by_hand(connection, ready.event_id)
            case _:
                raise ValueError(f"what is build, enqueue or insert, got {what!r}")


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    asyncio.run(write(order["what"], order["rows"]))
