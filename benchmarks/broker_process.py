"""A relay to a broker, or the broker's client alone, in a process of its own, so that its processor time is its own.

    python -m benchmarks.broker_process '{"arm": "relay", "kind": "nats", "address": "nats://…", "rows": 20000, …}'

``arm`` is ``relay`` (with ``dsn``) or ``plain`` (with ``window``). Prints what it cost as one line of JSON. With
``"profile": "FILE"`` it runs under cProfile and leaves the statistics there.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import logging
import sys
import time
from typing import Any

from benchmarks import plain_clients
from benchmarks.children import TABLE, event_loop
from benchmarks.relay_process import Metrics, Stopwatch
from outbox_core.dispatcher import load_dispatcher
from outbox_core.relay import Relay
from outbox_core.testing.contracts.samples import sample

TIMEOUT = 600.0
PAYLOAD = b'{"note": "' + b"0123456789abcdef" * 16 + b'", "order": 12345}'


def url(kind: str, address: str) -> str:
    return address if "://" in address else f"{kind}://{address}"


async def relay(order: dict[str, Any]) -> dict[str, Any]:
    """Everything at its default: leadership, the logging observer; and a metrics observer beside it."""
    watch = Stopwatch(order["rows"])
    dispatcher = load_dispatcher(url(order["kind"], order["address"]))
    relay = Relay(order["dsn"], table=TABLE, dispatcher=dispatcher, observers=(Metrics(), watch))
    async with asyncio.timeout(TIMEOUT), relay:
        await watch.done.wait()
    return watch.result()


async def plain(order: dict[str, Any]) -> dict[str, Any]:
    """As many messages as the relay has, as large, in windows of the relay's size, one after another."""
    rows, window = order["rows"], order["window"]
    messages = [
        plain_clients.ready(sample(plain_clients.TOPIC, PAYLOAD, sequence=number)) for number in range(rows)
    ]
    async with asyncio.timeout(TIMEOUT), plain_clients.PUBLISHERS[order["kind"]](order["address"]) as client:
        await client.publish(messages[:1])
        began, cpu = time.perf_counter(), time.process_time()
        for at in range(1, rows, window):
            await client.publish(messages[at : at + window])
        return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "published": rows}


def main() -> int:
    order = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.WARNING)
    factory, name = event_loop()
    profiler = cProfile.Profile() if order.get("profile") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        if profiler is not None:
            profiler.enable()
        result = runner.run(relay(order) if order["arm"] == "relay" else plain(order))
        if profiler is not None:
            profiler.disable()
            profiler.dump_stats(order["profile"])
    print(json.dumps(result | {"loop": name}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
