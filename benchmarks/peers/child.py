"""What the peers' processes have in common. Runs in a peer's environment: nothing but the standard library is imported.

A peer's module is started as ``python -m benchmarks.peers.NAME ORDER`` with an order in JSON: ``drain`` empties a table
it has filled before, ``receive`` notes when each of so many messages reaches the handler, ``write`` commits messages
at a steady rate. Each prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

PAYLOAD = {"order": 4711, "note": "0123456789abcdef" * 16}
LOAD_BATCH = 500

Handler = Callable[[Any], None]
"""Told each message as the library hands it over: `Peer.payload` reads it."""


class Peer(Protocol):
    """A library with its table in a schema of its own."""

    async def install(self) -> None:
        """An empty table in an empty schema."""
        ...

    async def add(self, payloads: list[dict[str, Any]], /) -> None:
        """Commit these messages, in one transaction."""
        ...

    async def settle(self) -> None:
        """Vacuum and checkpoint, so that every arm starts from the same state."""
        ...

    async def work(self, handle: Handler, /) -> None:
        """Deliver until cancelled."""
        ...

    def payload(self, given: Any, /) -> dict[str, Any]:
        """The payload of what a handler was told; parsed only now, unless the library has done so by itself."""
        ...

    async def left(self) -> int:
        """How many messages are not yet on record as delivered."""
        ...


Opened = Callable[[dict[str, Any]], AbstractAsyncContextManager[Peer]]


async def drain(peer: Peer, order: dict[str, Any]) -> dict[str, Any]:
    """The clock runs from the start of the worker, connections already open, until nothing is left.

    The handler does nothing but count: it reads no payload, as the relay's dispatcher reads none.
    """
    rows, done, calls = order["rows"], asyncio.Event(), 0

    def handle(_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls >= rows:
            done.set()

    await peer.install()
    for first in range(0, rows, LOAD_BATCH):
        await peer.add([PAYLOAD] * min(LOAD_BATCH, rows - first))
    await peer.settle()
    # As `outbox relay` does for itself.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, *gc.get_threshold()[1:])
    began = (time.perf_counter(), time.process_time())
    async with _working(peer, handle) as task:
        await _first(done.wait(), task)
        await _empty(peer)
        ended = (time.perf_counter(), time.process_time())
    return {"published": calls, "seconds": ended[0] - began[0], "cpu": ended[1] - began[1]}


async def receive(peer: Peer, order: dict[str, Any]) -> dict[str, Any]:
    """Says ``ready`` once a message of its own has come through, then notes when each of the writer's arrives."""
    rows, ready, done = order["rows"], asyncio.Event(), asyncio.Event()
    times: dict[str, float] = {}

    def handle(given: Any) -> None:
        number = peer.payload(given)["order"]
        if number < 0:
            ready.set()
            return
        times.setdefault(str(number), time.monotonic())
        if len(times) >= rows:
            done.set()

    await peer.install()
    async with _working(peer, handle) as task:
        await peer.add([PAYLOAD | {"order": -1}])
        await _first(ready.wait(), task)
        print("ready", flush=True)
        await _first(done.wait(), task)
    return times


async def write(peer: Peer, order: dict[str, Any]) -> dict[str, Any]:
    """When each COMMIT returned, by the message's number; the rate is kept whether or not anybody keeps up."""
    commits: dict[str, float] = {}

    async def one(number: int) -> None:
        await peer.add([PAYLOAD | {"order": number}])
        commits[str(number)] = time.monotonic()

    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(order["rows"]):
            await asyncio.sleep(max(began + number / order["rate"] - time.monotonic(), 0.0))
            tasks.create_task(one(number))
    return commits


def pool_options(order: dict[str, Any]) -> dict[str, Any]:
    """Of an asyncpg pool in the peer's schema."""

    async def as_it_is(_: Any) -> None:
        """The clock starts when COMMIT returns, and a reset would be another round trip before that is noticed."""

    return {
        "dsn": order["dsn"],
        "min_size": 10,
        "max_size": 10,
        "server_settings": {"search_path": order["schema"]},
        "reset": as_it_is if order["action"] == "write" else None,
    }


async def _empty(peer: Peer) -> None:
    """Nothing tells when the last batch is on record, so ask, and not so often that asking costs."""
    while True:
        if not await peer.left():
            return
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def _working(peer: Peer, handle: Handler) -> Any:
    task = asyncio.create_task(peer.work(handle))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=10)


async def _first(event: Awaitable[Any], task: asyncio.Task[None]) -> None:
    """Wait for the event, or fail with what ended the worker."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        await task
        raise RuntimeError("the worker ended before its work was done")


def main(opened: Opened) -> int:
    order = json.loads(sys.argv[1])
    actions = {"drain": drain, "receive": receive, "write": write}

    async def run() -> dict[str, Any]:
        async with asyncio.timeout(order["timeout"]), opened(order) as peer:
            return await actions[order["action"]](peer, order)

    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(run())), flush=True)
    except KeyboardInterrupt:
        return 130  # whoever started it was interrupted, too, and says so
    return 0
