"""Wait for something to happen, or see that it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Condition: TypeAlias = Callable[[], bool | Awaitable[bool]]
_POLL_SECONDS = 0.01


async def until(condition: Condition, timeout: float = 20.0, what: str = "the condition") -> float:
    """Check again and again until the condition holds; the seconds it took. Fails after ``timeout`` seconds."""
    began = time.monotonic()
    while not await _holds(condition):
        assert time.monotonic() - began <= timeout, f"{what} did not come true within {timeout:g} s"
        await asyncio.sleep(_POLL_SECONDS)
    return time.monotonic() - began


async def quiet_for(
    seconds: float,
    forbidden: Condition,
    what: str = "the forbidden condition",
    *,
    every: float = _POLL_SECONDS,
) -> None:
    """Let time pass in which something must not happen; fails at once when it does.

    For tests in which the passage of time is the point. One that waits for an effect takes `until`. The condition is
    checked at intervals of ``every`` seconds, and once more at the end.
    """
    began = time.monotonic()
    while True:
        late = time.monotonic() - began
        assert not await _holds(forbidden), f"{what} came true after {late:.2f} of {seconds:g} quiet seconds"
        if late >= seconds:
            return
        await asyncio.sleep(every)


async def _holds(condition: Condition) -> bool:
    held = condition()
    return held if isinstance(held, bool) else await held
