"""A consumer that reads while everything breaks, and comes back as often as it must. Run with its orders as JSON.

    python -m tests.faults.consumer_process '{"broker": "nats", "address": "…", "queue": "faults.live", …}'

With ``group`` the broker keeps count of what was read, else the consumer itself does. Its journal has a line for each
batch: the event ids, digests of their content and when they came. Ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults import groups, readers
from tests.integration.relay.journal import Journal

IDLE_SECONDS = 4.0
"""A connection that has brought nothing for so long may be one that nobody told us is gone."""
RETRY_SECONDS = 0.3
STUCK_SECONDS = 15.0


async def read(orders: dict[str, Any], journal: Journal, after: dict[int, int]) -> None:
    opened = (groups if orders["group"] else readers).READERS[orders["broker"]]
    async with opened(orders["address"], orders["queue"], after) as reader:
        last = time.monotonic()
        while time.monotonic() - last < IDLE_SECONDS:
            async with asyncio.timeout(STUCK_SECONDS):
                found = await reader.some()
            if found:
                last = time.monotonic()
                journal.write(
                    "arrived",
                    consumer=orders["queue"],
                    ids=[record.event_id for record in found],
                    contents=[record.content for record in found],
                )
                for record in found:
                    after[record.partition] = max(after.get(record.partition, -1), record.position)
                async with asyncio.timeout(STUCK_SECONDS):
                    await reader.done()


async def main(orders: dict[str, Any]) -> None:
    journal, after = Journal(Path(orders["journal"])), dict[int, int]()

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    while not stopped.is_set():
        # In a task of its own: a client whose broker is broken on purpose may raise anything, cancellation included.
        await asyncio.wait([asyncio.create_task(_quietly(orders, journal, after))])
        await asyncio.sleep(RETRY_SECONDS)


async def _quietly(orders: dict[str, Any], journal: Journal, after: dict[int, int]) -> None:
    with contextlib.suppress(Exception):
        await read(orders, journal, after)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(json.loads(sys.argv[1])))
