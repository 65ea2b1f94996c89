"""Relays in processes of their own: started, watched, and what they measured."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks import machine
from benchmarks.children import resident
from benchmarks.common import Place


@asynccontextmanager
async def started(
    module: str, order: dict[str, Any], **more: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of ours, killed at the end of the block if it still runs: nothing stays when a run is broken off."""
    python = more.pop("python", sys.executable)
    process = await asyncio.create_subprocess_exec(
        python, "-m", module, json.dumps(order), stdout=asyncio.subprocess.PIPE, **more
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def child(module: str, order: dict[str, Any], *, python: str = sys.executable) -> Any:
    """Run a process of ours to its end and return what it printed last, one line of JSON.

    Raises RuntimeError when it fails, TimeoutError when it is not done 60 s after the order's own ``timeout``, 600 s
    without one.
    """
    async with started(module, order, python=python) as process:
        output, _ = await asyncio.wait_for(process.communicate(), order.get("timeout", 600.0) + 60)
    return result(module, process, output)


async def relay(dsn: str, rows: int, **order: Any) -> dict[str, Any]:
    """A relay process until it has published so many rows: what it measured, with the ``peak`` of its memory in MB."""
    module, peak = "benchmarks.relay_process", 0.0
    async with started(module, {"dsn": dsn, "rows": rows, **order}) as process:
        reading = asyncio.ensure_future(process.communicate())
        while not reading.done():
            peak = max(peak, resident(process.pid))
            await asyncio.wait({reading}, timeout=0.05)
        output, _ = await reading
    found: dict[str, Any] = result(module, process, output)
    return found | {"peak": max([peak, *(mb for _, mb in found["memory"])])}


def result(module: str, process: asyncio.subprocess.Process, output: bytes) -> Any:
    """What a process that has ended printed last. Raises RuntimeError when it failed, or printed no such thing."""
    if process.returncode != 0:
        raise RuntimeError(
            f"the process {module} failed with {process.returncode}; what it said stands above"
        )
    try:
        return json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise RuntimeError(f"the process {module} ended well and printed no result") from None


async def drained(place: Place, rows: int, **settings: Any) -> dict[str, Any]:
    """What a relay process measured, with its ``rate`` and the ``server_cpu`` seconds spent meanwhile."""
    before = machine.processor_seconds(place.processes())
    found = await relay(place.dsn, rows, settings=settings)
    spent = machine.processor_seconds(place.processes()) - before
    return found | {"rate": rows / found["seconds"], "server_cpu": spent}
