"""Nobody overtakes a message of its key that was there when it was claimed, whatever goes on around them: failures,
deaths, delays, savepoints, late commits, rows that somebody keeps locked, replays."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from outbox_core.errors import PermanentError, RetryAfter
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay.ordering.watermarks import KeyWatermarks
from tests.integration.relay.bench import TABLE, TOPIC, Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]
SECONDS = 5.0
KEYS = 6
_BEFORE = f"""
    SELECT earlier.event_id, earlier.sequence, later.locked_at
    FROM {TABLE} AS earlier, {TABLE} AS later
    WHERE later.sequence = $2 AND earlier.key = $1 AND earlier.sequence < $2 AND earlier.published_at IS NULL
      AND ($3 OR earlier.dead_at IS NULL) AND earlier.replays = 0
"""  # noqa: S608
_LOCK = f"""
    SELECT FROM {TABLE} WHERE published_at IS NULL AND dead_at IS NULL ORDER BY random() LIMIT 2 FOR UPDATE SKIP LOCKED
"""
_REPLAY = f"""
    UPDATE {TABLE}
    SET published_at = NULL, dead_at = NULL, attempts = 0, replays = replays + 1, available_at = clock_timestamp()
    WHERE id IN (
        SELECT id FROM {TABLE} WHERE published_at IS NOT NULL OR dead_at IS NOT NULL ORDER BY random() LIMIT 2
    )
"""  # noqa: S608


@pytest.fixture(params=["looks with its claims", "looks apart, from floors on"])
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    apart = request.param != "looks with its claims"
    monkeypatch.setattr(KeyWatermarks, "in_use", apart)
    monkeypatch.setattr(KeyWatermarks, "find_separately", apart)
    return apart


@dataclass
class Traffic:
    """Writers, a destination that fails now and then, and those who get in the way."""

    bench: Bench
    pool: Any
    blocking: bool
    random: random.Random
    committed: dict[UUID, datetime] = field(default_factory=dict[UUID, datetime])
    """When, at the latest."""
    acknowledged: set[UUID] = field(default_factory=set[UUID])
    overtaken: list[str] = field(default_factory=list[str])
    looked: int = 0
    end: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.end

    async def dispatch(self, message: DispatchedMessage) -> None:
        meta = message.meta
        if not meta.replays:
            before = await self.pool.fetch(_BEFORE, meta.key, meta.sequence, self.blocking)
            self.looked += 1
            self.overtaken += [
                f"{meta.key}: {meta.sequence} overtook {row['sequence']}"
                for row in before
                if row["event_id"] not in self.acknowledged
                and self.committed.get(row["event_id"], row["locked_at"]) < row["locked_at"]
            ]
        outcome = self.random.random()
        if outcome < 0.12:
            raise ValueError("not this time")
        if outcome < 0.14:
            raise PermanentError("never")
        if outcome < 0.15:
            raise RetryAfter(timedelta(seconds=0.4))
        self.acknowledged.add(meta.event_id)

    async def write(self, number: int) -> None:
        chance = random.Random(number)
        while self.goes_on:
            async with self.pool.acquire() as connection:
                written: list[Message] = []
                try:
                    async with connection.transaction():
                        written = await self._write_some(connection, chance)
                        if chance.random() < 0.1:
                            raise LookupError  # rolls back
                except LookupError:
                    continue
                now = await connection.fetchval("SELECT clock_timestamp()")
                self.committed.update((message.event_id, now) for message in written)

    async def _write_some(self, connection: Any, chance: random.Random) -> list[Message]:
        written: list[Message] = []
        for _ in range(chance.randint(1, 4)):
            delay = timedelta(seconds=chance.choice((0, 0, 0, 0, 0.3, 1)))
            message = Message(TOPIC, 1, key=f"k{chance.randrange(KEYS)}", delay=delay)
            try:
                async with connection.transaction():
                    await self.bench.outbox.enqueue(connection, message)
                    if chance.random() < 0.1:
                        raise LookupError  # rolls back to the savepoint
            except LookupError:
                continue
            written.append(message)
            if chance.random() < 0.1:
                await connection.execute("SELECT pg_sleep($1)", chance.random() * 0.8)
        return written

    async def lock(self) -> None:
        while self.goes_on:
            async with self.pool.acquire() as connection, connection.transaction():
                await connection.execute(_LOCK)
                await connection.execute("SELECT pg_sleep($1)", self.random.random() * 0.6)

    async def replay(self) -> None:
        while self.goes_on:
            await self.pool.execute("SELECT pg_sleep(0.5)")
            await self.pool.execute(_REPLAY)


@pytest.mark.parametrize("on_dead", ["skip", "block"])
async def test_nobody_overtakes(bench: Bench, looks: bool, on_dead: str) -> None:
    async with asyncpg.create_pool(bench.writers, min_size=8, max_size=12) as pool:
        traffic = Traffic(bench, pool, on_dead == "block", random.Random(7))
        relay = bench.relay(
            traffic.dispatch,
            on_dead=on_dead,
            max_attempts=4,
            database_timeout=1.0,
            backoff_base=0.3,
            backoff_cap=0.3,
        )
        async with relay:
            await asyncio.gather(*map(traffic.write, range(4)), traffic.lock(), traffic.replay())
        assert traffic.overtaken == []
        assert traffic.looked > 50
        assert len(traffic.committed) > 50
