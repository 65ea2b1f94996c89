"""Run a coroutine from synchronous code, inside a running event loop or outside of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(function: Callable[[], Coroutine[Any, Any, T]], *, timeout_s: float) -> T:
    """Call `function` on an event loop of its own, on a thread of its own. Raises TimeoutError after `timeout_s`."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await function()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="harness") as thread:
        return thread.submit(asyncio.run, bounded()).result()
