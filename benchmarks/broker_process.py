"""A relay to a broker, or the broker's client alone, in a process of its own, so that its processor time is its own.

    python -m benchmarks.broker_process '{"arm": "relay", "kind": "nats", "address": "nats://…", "rows": 20000, …}'

``arm`` is ``relay`` (with ``dsn``) or ``plain`` (with ``window``). Prints what it cost as one line of JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from benchmarks import children, plain_clients
from benchmarks.children import TABLE
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
    """As many messages as the relay has, as large, ready before the clock starts."""
    rows, window = order["rows"], order["window"]
    async with asyncio.timeout(TIMEOUT), plain_clients.connected(order["kind"], order["address"]) as client:
        samples = [sample(plain_clients.TOPIC, PAYLOAD, sequence=number) for number in range(rows)]
        began = time.process_time()
        messages = [client.ready(each) for each in samples]
        making = time.process_time() - began
        await client.publish(messages[:1], window)
        began, cpu = time.perf_counter(), time.process_time()
        await client.publish(messages[1:], window)
        spent = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
        return {**spent, "making": making, "published": rows}


async def work(order: dict[str, Any]) -> dict[str, Any]:
    return await (relay(order) if order["arm"] == "relay" else plain(order))


if __name__ == "__main__":
    sys.exit(children.run(work))
