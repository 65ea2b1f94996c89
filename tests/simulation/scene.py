"""A relay on a slow store in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from outbox_core.dispatchers.router import Router
from outbox_core.errors import StorageTimeout
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.store import Claim, Leased
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from tests.kit.memory import TABLE, put
from tests.simulation.loop import VirtualLoop

GOOD, UNAVAILABLE = "good.b.v1", "away.b.v1"
TIMEOUT, DISPATCH_TIMEOUT, LOCK_TTL = 2.0, 5.0, 30.0


class SlowStore(MemoryStore):
    """Keeps when a statement was broken off."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self.broken_off: list[float] = []

    async def spend(self, seconds: float) -> None:
        """Keep the database busy for ``seconds``, no longer than the timeout."""
        await asyncio.sleep(min(seconds, TIMEOUT))
        if seconds > TIMEOUT:
            self.broken_off.append(asyncio.get_running_loop().time())
            raise StorageTimeout("not answered in time")


S = TypeVar("S", bound=SlowStore)


class Scene(Generic[S]):
    """A relay on a slow store, in virtual time, with a healthy destination among others."""

    def __init__(self, loop: VirtualLoop, store: S) -> None:
        self.loop = loop
        self.store = store
        self._arrived = asyncio.Event()

    async def good(self, _: DispatchedMessage) -> None:
        self._arrived.set()

    async def arrival(self, seconds: float) -> None:
        """Wait until a message has reached the healthy destination; fails after ``seconds``."""
        async with asyncio.timeout(seconds):
            await self._arrived.wait()

    def relay(self, others: Mapping[str, Any] | None = None, backoff: float = 0.5) -> Relay:
        return Relay(
            lambda: self.store,
            table=TABLE,
            dispatcher=Router({"good.**": self.good, **(others or {})}),
            database_timeout=TIMEOUT,
            dispatch_timeout=DISPATCH_TIMEOUT,
            lock_ttl=LOCK_TTL,
            backoff_base=backoff,
            backoff_cap=max(backoff, 3.0),
            backoff_jitter=0.0,
            poll_interval=0.05,
        )

    async def waits(self, seconds: float, topics: Sequence[str] = ()) -> list[float]:
        """How long one message after another takes to arrive, each written a second after the last has arrived, and
        after others of these topics."""
        found = list[float]()
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await put(self.store, *(Message(topic, 1) for topic in topics))
            self._arrived.clear()
            began = self.loop.time()
            await put(self.store, Message(GOOD, 1))
            await self.arrival(60.0)
            found.append(self.loop.time() - began)
            await asyncio.sleep(1.0)
        return found


def play(store: type[S], scenario: Callable[[Scene[S]], Awaitable[None]]) -> None:
    """Run a scenario on a new store of this type, in virtual time."""
    loop = VirtualLoop()

    def clock() -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=loop.time())

    async def main() -> None:
        await scenario(Scene(loop, store(clock)))

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


class Passing(SlowStore):
    """A store whose claims take the longer, the more messages for unavailable destinations they pass."""

    row_seconds = 0.006

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        passed = sum(
            claim.since <= (row.available_at, row.sequence) <= claim.until
            for row in self.table(table).rows.values()
            if row.published_at is None and row.record.topic in claim.blocked_topics
        )
        await self.spend(passed * self.row_seconds)
        return await super().claim(table, claim)
