"""Other people's code that may ignore its cancellation: in a task of its own, which can be left behind."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import anyio

OVERTIME_SECONDS: Final = 0.2
"""What a task has to end after its cancellation before it is left behind."""

_logger: Final = logging.getLogger("outbox_core.relay")
_left_behind: Final[set[asyncio.Task[Any]]] = set()
"""Kept from the garbage collector, which would end them with a warning that helps nobody."""


async def ended_within(task: asyncio.Task[Any], seconds: float, what: str) -> bool:
    """Wait until a task has ended; false when it had to be cut off, because its time was over. It is cut off, too, when
    whoever waits is cancelled. What does not heed that is left behind, and said so."""
    try:
        await asyncio.wait({task}, timeout=max(seconds, 0.0))
        return task.done()
    finally:
        if not task.done():
            await _cut_off(task, what)


async def _cut_off(task: asyncio.Task[Any], what: str) -> None:
    task.cancel()
    try:
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task}, timeout=OVERTIME_SECONDS)
    finally:
        if not task.done():
            _leave_behind(task, what)
        elif not task.cancelled():
            task.exception()  # looked at: what it says after its time is over interests nobody


def failed(task: asyncio.Task[Any]) -> bool:
    """Whether a task that has ended raised, or was cancelled by somebody of its own."""
    return task.cancelled() or task.exception() is not None


def _leave_behind(task: asyncio.Task[Any], what: str) -> None:
    _logger.error("%s ignored its cancellation and was left behind; it must let CancelledError through", what)
    _left_behind.add(task)
    task.add_done_callback(_ended_after_all)


def _ended_after_all(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that nobody is told that it was not
