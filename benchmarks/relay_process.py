"""A relay in a process of its own, so that its processor time and memory are its own.

    python -m benchmarks.relay_process '{"dsn": "postgresql://…", "rows": 200000, "settings": {}}'

Delivers to a dispatcher that does nothing until so many rows are published, and prints what it cost as one line of
JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_left
from collections import Counter
from typing import Any

from benchmarks import children
from benchmarks.children import TABLE, resident
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Claimed, Dispatched, Event, Failed, Published
from outbox_core.relay import Relay

_LOOK_SECONDS = 0.02
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """Keeps what a metrics library would: counters and a histogram per topic, filled for each message."""

    def __init__(self) -> None:
        self.counters: Counter[tuple[str, str]] = Counter()
        self.histogram: Counter[tuple[str, int]] = Counter()

    def __call__(self, event: Event, /) -> None:
        match event:
            case Claimed():
                self.counters["claimed", str(event.table)] += event.rows
            case Dispatched():
                for meta, seconds in zip(event.messages, event.seconds, strict=True):
                    self.histogram[meta.topic, bisect_left(_BUCKETS, seconds)] += 1
            case Published():
                for meta in event.messages:
                    self.counters["published", meta.topic] += 1
            case Failed():
                self.counters["failed", event.message.topic] += 1
            case _:
                pass


class Stopwatch:
    """From the beginning of the first claim until so many rows are on record as published."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.published = 0
        self.done = asyncio.Event()
        self.began: tuple[float, float] | None = None
        self.ended = (0.0, 0.0)
        self.claims: list[tuple[int, float]] = []

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, Claimed):
            if self.began is None:
                self.began = (time.perf_counter() - event.seconds, time.process_time())
            self.claims.append((event.rows, event.seconds))
        elif isinstance(event, Published):
            self.published += len(event.messages)
            if self.published >= self.rows:
                self.ended = (time.perf_counter(), time.process_time())
                self.done.set()

    def result(self) -> dict[str, Any]:
        began = self.began or self.ended
        return {
            "published": self.published,
            "seconds": self.ended[0] - began[0],
            "cpu": self.ended[1] - began[1],
            "claims": len(self.claims),
            "claim_seconds": sum(seconds for _, seconds in self.claims),
        }


class Memory:
    """MB of this process in memory, by how many rows are on record as published."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, float]] = []
        self._published = 0
        self._next = 0.0

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, Published):
            self._published += len(event.messages)
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + _LOOK_SECONDS
                self.samples.append((self._published, resident("self")))


async def nothing(_: DispatchedMessage) -> None:
    return None


async def deliver(order: dict[str, Any]) -> dict[str, Any]:
    watch, memory = Stopwatch(order["rows"]), Memory()
    observers, settings = (Metrics(), watch, memory), order.get("settings", {})
    relay = Relay(order["dsn"], table=TABLE, dispatcher=nothing, observers=observers, **settings)
    made = time.perf_counter()
    async with asyncio.timeout(order.get("timeout", 600.0)), relay:
        await watch.done.wait()
    first_claim = made if watch.began is None else watch.began[0]
    return watch.result() | {"memory": memory.samples, "start_seconds": first_claim - made}


if __name__ == "__main__":
    sys.exit(children.run(deliver))
