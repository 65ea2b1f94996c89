"""Other people's code that may ignore its cancellation: in a task of its own, which can be left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import anyio

from outbox_core.relay import clock

OVERTIME_SECONDS: Final = 0.2
"""What a task has to end after its cancellation before it is left behind."""

_LOOK_SECONDS: Final = 0.1
_logger: Final = logging.getLogger("outbox_core.relay")
_left_behind: Final[set[asyncio.Task[Any]]] = set()
"""Kept from the garbage collector, which would end them with a warning that helps nobody."""


async def ended_within(task: asyncio.Task[Any], seconds: float, what: str) -> bool:
    """Wait until a task has ended; false when it had to be cut off, because its time was over. It is cut off, too, when
    whoever waits is cancelled. What does not heed that is left behind, and said so."""
    over = clock.now() + seconds
    return await ended_by(task, lambda: over, what)


async def ended_by(task: asyncio.Task[Any], over: Callable[[], float], what: str) -> bool:
    """The same by a time that may change meanwhile: it is asked for again every 0.1 s."""
    try:
        left = over() - clock.now()
        while True:
            await asyncio.wait({task}, timeout=min(max(left, 0.0), _LOOK_SECONDS))
            if task.done() or (left := over() - clock.now()) <= 0:
                return task.done()
    except BaseException:
        _look_at(task)  # it may have ended in the same moment
        raise
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
        else:
            _look_at(task)  # what it says after its time is over interests nobody


def _leave_behind(task: asyncio.Task[Any], what: str) -> None:
    _logger.error("%s ignored its cancellation and was left behind; it must let CancelledError through", what)
    keep(task)


def keep(task: asyncio.Task[Any]) -> None:
    """Nobody waits for a task any more, which may end all the same."""
    _left_behind.add(task)
    task.add_done_callback(_ended_after_all)


def _ended_after_all(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    _look_at(task)


def _look_at(task: asyncio.Task[Any]) -> None:
    """So that nobody is told that an error was never looked at."""
    if task.done() and not task.cancelled():
        task.exception()
