"""What the benchmarks' own processes share. They import this and not `benchmarks.common`: what they import is part of
every start, and of a relay's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outbox_core.table import TableName

TABLE = TableName("outbox_benchmark", "orders_outbox")


def event_loop() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """How to make the fastest event loop there is, and its name."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop, "asyncio"
    return uvloop.new_event_loop, "uvloop"
