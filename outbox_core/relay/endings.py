"""What ended a run: the one error of several that is raised, and what is logged where nobody is there to be told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, cast

from outbox_core.errors import RelayFailed

_logger: Final = logging.getLogger("outbox_core.relay")


def first(error: BaseException) -> BaseException:
    """Of a group the error that ended the run: what came with it is of no more use to whoever reads it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def cut_off() -> RelayFailed:
    """What ends a relay of which a part was cancelled by somebody else, which would look like a stop."""
    return RelayFailed(
        "a part of the relay ended with CancelledError: what it waited for was cancelled, and not by the relay;"
        " look for a task that is cancelled in a function the relay calls"
    )


async def carried_out(part: Callable[[], Awaitable[None]], crashed: Callable[[BaseException], None]) -> bool:
    """Do a part of the work. If it dies, whoever has ``crashed`` is told, and nobody beside it is torn up: false."""
    try:
        await part()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        crashed(cut_off())
        return False
    except Exception as error:
        crashed(error)
        return False
    return True


def log_death(task: asyncio.Task[None]) -> None:
    """Of a relay in the background: whoever started it may never ask."""
    if (error := _error_of(task)) is not None:
        _logger.critical(
            "the relay ended with %s; nothing is delivered until it is started again",
            type(error).__name__,
            exc_info=error,
        )


def log_failed_stop(task: asyncio.Task[None]) -> None:
    """Of a run that was cancelled and so raises that, whatever its stop ended with."""
    if task.done() and (error := _error_of(task)) is not None:
        _logger.error(
            "the relay was cancelled, and its stop ended with %s; it is stopped",
            type(error).__name__,
            exc_info=error,
        )


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
