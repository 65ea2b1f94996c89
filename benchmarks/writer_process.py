"""A writer in a process of its own: commits messages at a steady rate, whether or not anybody keeps up.

    python -m benchmarks.writer_process '{"dsn": "postgresql://…", "rate": 100, "together": 1, "seconds": 5, …}'

The rate is of messages; a transaction has as many as are to be ``together``. With ``"mixed": true``, one transaction
in ten stays open for 200 ms and one in ten is rolled back. Prints one line of JSON that maps each committed
``event_id`` to when its COMMIT returned, on the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import asyncpg

from benchmarks.children import TABLE, event_loop
from outbox_core.message import Message
from outbox_core.outbox import Outbox

CONNECTIONS = 24
MIXED_CONNECTIONS = 64
"""Long transactions keep 20 of them at 1,000 messages a second."""
LONG_SECONDS = 0.2
PAYLOAD = {"order": 4711, "note": "0123456789abcdef" * 16}


async def write(dsn: str, rate: float, together: int, seconds: float, *, mixed: bool) -> dict[str, float]:
    outbox, commits = Outbox(TABLE), dict[str, float]()
    connections = MIXED_CONNECTIONS if mixed else CONNECTIONS
    async with asyncpg.create_pool(dsn, min_size=connections, max_size=connections) as pool:

        async def one(number: int) -> None:
            messages = [Message("shop.order.placed.v1", PAYLOAD) for _ in range(together)]
            async with pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                if together == 1:
                    await outbox.enqueue(connection, messages[0])
                else:
                    await outbox.enqueue_many(connection, messages)
                if mixed and number % 10 == 3:
                    await asyncio.sleep(LONG_SECONDS)
                if mixed and number % 10 == 7:
                    await transaction.rollback()
                    return
                await transaction.commit()
                # Before the connection goes back: its reset is another round trip.
                at = time.monotonic()
                commits.update((str(message.event_id), at) for message in messages)

        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(round(rate * seconds / together)):
                await asyncio.sleep(max(began + number * together / rate - time.monotonic(), 0.0))
                tasks.create_task(one(number))
    return commits


def main() -> int:
    order = json.loads(sys.argv[1])
    factory, _ = event_loop()
    with asyncio.Runner(loop_factory=factory) as runner:
        work = write(order["dsn"], order["rate"], order["together"], order["seconds"], mixed=order["mixed"])
        print(json.dumps(runner.run(work)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
