"""Database calls are never broken off half-way: the event loop's cancellation would reach the driver's own rollback."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def shielded(work: Awaitable[T]) -> T:
    """Wait for work that has a bound of its own, whatever is cancelled meanwhile; the cancellation comes after it."""
    results: list[T] = []
    with anyio.CancelScope(shield=True):
        results.append(await work)
    return results[0]
