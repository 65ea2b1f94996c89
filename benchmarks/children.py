"""What the benchmarks' own processes share. They import this and not `benchmarks.common`: what they import is part of
every start, and of a relay's memory."""

from __future__ import annotations

import asyncio
import cProfile
import json
import logging
import resource
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from outbox_core.cli.process import tune_gc
from outbox_core.table import TableName

TABLE = TableName("outbox_benchmark", "orders_outbox")


def event_loop() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """How to make the fastest event loop there is, and its name."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop, "asyncio"
    return uvloop.new_event_loop, "uvloop"


def run(work: Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]) -> int:
    """The whole of a process of ours: do what the order on the command line says, and print one line of JSON.

    It is on the fastest event loop and spares the garbage collector, as ``outbox relay`` does. With ``"profile":
    "FILE"`` in the order it runs under cProfile and leaves the statistics there.
    """
    order = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.WARNING)
    factory, name = event_loop()
    tune_gc()
    profiler = cProfile.Profile() if order.get("profile") else None
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            if profiler is not None:
                profiler.enable()
            result = runner.run(work(order))
            if profiler is not None:
                profiler.disable()
                profiler.dump_stats(order["profile"])
    except KeyboardInterrupt:
        return 130  # whoever started it was interrupted, too, and says so
    print(json.dumps(result | {"loop": name}))
    return 0


def resident(process: int | str) -> float:
    """MB of a process in memory; 0 once it has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
    except (OSError, IndexError):
        return 0.0
