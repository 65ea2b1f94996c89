"""A writer: transactions that commit, roll back, roll back to a savepoint, or end in a way nobody knows.

    python -m tests.faults.writer_process '{"dsn": "postgresql://…", "history": "FILE", "name": "w0.1", …}'

Each transaction writes a message and a row of the ledger, with a digest of what the message says. The history has a
line when one is tried and another when its outcome is known; a line without the other is an unknown outcome. Ends on
SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from outbox_core.message import Message
from outbox_core.outbox import Outbox
from tests.faults import content
from tests.faults.plan import POISON, TABLE, TOPIC
from tests.integration.relay.journal import Journal

STATEMENT_SECONDS = 3.0
RETRY_SECONDS = 0.2
POISONED, KEYLESS, OF_BYTES, LARGE = 0.01, 0.2, 0.15, 0.05
LARGE_BYTES = 4_000
TENANTS = (UUID(int=0), UUID(int=7))
NOTES = ("plain", "größer als 1, ✓", "=?utf-8?q?a?=", 'a, b; c="d" %20 \\')
_TROUBLE = (
    asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError,
    asyncpg.InternalClientError,  # of a session whose server has just said farewell
)  # fmt: skip
_NEXT_PLACE = """
INSERT INTO faults_counter AS counter (key, place) VALUES ($1, 1)
ON CONFLICT (key) DO UPDATE SET place = counter.place + 1 RETURNING place
"""
_LEDGER = """
INSERT INTO faults_ledger (event_id, key, place, poison, content) VALUES ($1, $2, $3, $4, $5)
"""


class Interruption(Exception):
    """The application's own error, for which it rolls back."""


class Writer:
    def __init__(self, orders: dict[str, Any]) -> None:
        self.journal = Journal(Path(orders["history"]))
        self.name: str = orders["name"]
        self.ordered: bool = orders["ordered"]
        self.keys: int = orders["keys"]
        self.random = random.Random(orders["seed"])
        self.outbox = Outbox(TABLE)
        self.number = 0

    async def transact(self, connection: Any) -> None:
        """One transaction with its history."""
        kind = self.random.choices(("commit", "rollback", "savepoint", "several"), (70, 12, 10, 8))[0]
        kept = [self.message() for _ in range(3 if kind == "several" else 1)]
        taken_back = [self.message()] if kind == "savepoint" else []
        if kind == "rollback":
            kept, taken_back = [], kept
        self.note("invoke", kept, taken_back)
        try:
            async with connection.transaction():
                if kind == "savepoint":
                    with contextlib.suppress(Interruption):
                        async with connection.transaction():
                            await self.write(connection, taken_back[0])
                            raise Interruption
                for message in kept or taken_back:
                    await self.write(connection, message)
                if kind == "rollback":
                    raise Interruption
        except (Interruption, asyncpg.DeadlockDetectedError):  # or the server has said that it rolled back
            self.note("fail", kept, taken_back)
        except BaseException:
            # From the first statement on, whether the server heard the COMMIT is not for the client to say.
            self.note("info", kept, taken_back)
            raise
        else:
            self.note("ok", kept, taken_back)

    def message(self) -> Message:
        """A key is of one tenant, so that its name alone says where it stands in order."""
        self.number += 1
        number = None if self.random.random() < KEYLESS else self.random.randrange(self.keys)
        tenant = self.random.choice(TENANTS) if number is None else TENANTS[number % len(TENANTS)]
        return Message(
            POISON if self.random.random() < POISONED else TOPIC,
            key=None if number is None else f"key-{number}",
            event_id=UUID(int=self.random.getrandbits(128), version=4),
            tenant_id=tenant,
            headers={"app-writer": self.name, "App-Note": self.random.choice(NOTES)},
            **self.what(),
        )

    def what(self) -> dict[str, Any]:
        """Bytes that must not change, or JSON that must keep its meaning; a few are large."""
        filling = self.random.randbytes(LARGE_BYTES if self.random.random() < LARGE else 8)
        if self.random.random() < OF_BYTES:
            return {"body": filling, "content_type": "application/octet-stream"}
        price = self.random.randrange(100_000) / 100
        return {
            "payload": {
                "writer": self.name,
                "value": self.number,
                "price": price,
                "ü": [None, True, filling.hex()],
            }
        }

    async def write(self, connection: Any, message: Message) -> None:
        """The message first: its key's lock is what must keep the counter in the order of sequences."""
        sequence = await self.outbox.enqueue(connection, message, serialize_key=self.ordered)
        place = None
        if self.ordered and message.key is not None:
            place = await connection.fetchval(_NEXT_PLACE, message.key)
        digest = content.of_message(message, f"public.{TABLE}", sequence).digest()
        poison = message.topic == POISON
        await connection.execute(_LEDGER, message.event_id, message.key, place, poison, digest)

    def note(self, kind: str, kept: list[Message], taken_back: list[Message]) -> None:
        ids = {
            "kept": [str(message.event_id) for message in kept],
            "back": [str(message.event_id) for message in taken_back],
        }
        self.journal.write(kind, writer=self.name, **ids)


@contextlib.asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Any]:
    connection: Any = await asyncpg.connect(dsn, timeout=STATEMENT_SECONDS, command_timeout=STATEMENT_SECONDS)
    try:
        yield connection
    finally:
        connection.terminate()


async def main(orders: dict[str, Any]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    writer, pause = Writer(orders), 1 / orders["rate"]
    while not stopped.is_set():
        # An application retries what its database driver, the server or the network did to it, with a new transaction.
        with contextlib.suppress(*_TROUBLE):
            async with connected(orders["dsn"]) as connection:
                while not stopped.is_set():
                    began = time.monotonic()
                    await writer.transact(connection)
                    await _pause(stopped, began + pause - time.monotonic())
        await _pause(stopped, RETRY_SECONDS)


async def _pause(stopped: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(seconds, 0)):
            await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
