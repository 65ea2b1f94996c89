"""Supervision: loops that must not die silently, tasks that may ignore their cancellation, an event loop that stands
still."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import anyio

from outbox_core.errors import RelayFailed
from outbox_core.runtime import clock

if TYPE_CHECKING:
    from outbox_core.runtime.shutdown import Shutdown

OVERTIME_SECONDS: Final = 0.2
"""Time for a task to end after its cancellation before it is abandoned."""
_CHECK_SECONDS: Final = 0.1
_HEARTBEAT_SECONDS: Final = 0.5
_LATE_SECONDS: Final = 1.0
"""Later than a busy event loop is."""
_logger: Final = logging.getLogger("outbox_core.relay")
_abandoned: Final[set[asyncio.Task[Any]]] = set()
"""Kept from the garbage collector, which would end them with a warning that helps no one."""


async def supervise(loop: Callable[[], Awaitable[None]], shutdown: Shutdown, grace: float = 0.0) -> bool:
    """Run a loop. If it dies, the run is asked to stop in order, within ``grace``, and what runs beside it is not torn
    down: false."""
    try:
        await loop()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        cancelled = task is None or task.cancelling() > 0
        if not cancelled or not shutdown.requested:  # the run itself cancels a loop only after that
            shutdown.fail(cancelled_from_outside(), grace)
        if cancelled:
            raise
        return False
    except Exception as error:
        shutdown.fail(error, grace)
        return False
    return True


def cancelled_from_outside() -> RelayFailed:
    """The error of a part that was cancelled, and not by the relay: that would look like a stop."""
    return RelayFailed(
        "a part of the relay ended with CancelledError: what it waited for was cancelled, and not by the relay;"
        " look for a task that is cancelled in a function the relay calls"
    )


async def watch_event_loop(name: str) -> None:
    """Sleep again and again, until cancelled, and warn when waking up came late by more than a second: meanwhile there
    was no heartbeat, no claim and no record. A process that was stopped or got no processor looks the same. The warning
    names the table ``name``."""
    while True:
        began = clock.now()
        await anyio.sleep(_HEARTBEAT_SECONDS)
        late = clock.now() - began - _HEARTBEAT_SECONDS
        if late > _LATE_SECONDS:
            _logger.warning(
                "%s: the event loop stood still for %.1f s: look for a blocking call in the dispatcher or beside it,"
                " unless the process was stopped or had no processor",
                name, late, extra={"outbox_table": name},
            )  # fmt: skip


async def ended_within(task: asyncio.Task[Any], seconds: float, what: str) -> bool:
    """Wait until a task has ended; false when it had to be cut off, because its time was over. It is cut off, too, when
    the wait is cancelled. A task that ignores that is abandoned, and logged."""
    over = clock.now() + seconds
    return await ended_by(task, lambda: over, what)


async def ended_by(task: asyncio.Task[Any], over: Callable[[], float], what: str) -> bool:
    """The same by a time that may change meanwhile: it is asked for again every 0.1 s."""
    try:
        left = over() - clock.now()
        while True:
            await asyncio.wait({task}, timeout=min(max(left, 0.0), _CHECK_SECONDS))
            if task.done() or (left := over() - clock.now()) <= 0:
                return task.done()
    except BaseException:
        _retrieve(task)  # it may have ended in the same moment
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
            _abandon(task, what)
        else:
            _retrieve(task)  # what it says after its time is over is of no use


def _abandon(task: asyncio.Task[Any], what: str) -> None:
    _logger.error("%s ignored its cancellation and was abandoned; it must let CancelledError through", what)
    keep(task)


def keep(task: asyncio.Task[Any]) -> None:
    """Keep a task that is abandoned from the garbage collector, until it ends after all."""
    _abandoned.add(task)
    task.add_done_callback(_ended_late)


def _ended_late(task: asyncio.Task[Any]) -> None:
    _abandoned.discard(task)
    _retrieve(task)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Take its error, so that the event loop does not log that it was never retrieved."""
    if task.done() and not task.cancelled():
        task.exception()
