"""A task that takes rows to a dispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from outbox_core.errors import DispatchInterrupted, DispatchTimeout
from outbox_core.relay.bounded import keep

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Delivery

_logger: Final = logging.getLogger("outbox_core.relay")


class Worker:
    """One task of an outlet. ``deadline`` counts while it has rows with the dispatcher, ``has_place`` while it may."""

    __slots__ = ("deadline", "has_place", "left_behind", "overdue", "rows", "since", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.rows: Sequence[Delivery] = ()
        self.since = 0.0
        self.deadline = 0.0
        self.has_place = True
        self.overdue = False
        self.left_behind = False

    def leave_behind(self, dispatcher: str, what: str) -> None:
        """Nobody waits for the task any more, which did not heed ``what``."""
        self.left_behind = True
        if self.task is not None:
            keep(self.task)
        _logger.error(
            "the dispatcher %s ignored %s and was left behind with %d message(s);"
            " it must let CancelledError through",
            dispatcher, what, len(self.rows),
        )  # fmt: skip

    def cut_off(self, task: asyncio.Task[None], timeout: float, *, stopping: bool) -> BaseException:
        """What a cancellation meant: the deadline, or the end of the relay."""
        if self.overdue:
            self.overdue = False
            task.uncancel()
            return DispatchTimeout(f"not acknowledged within {timeout:g} s")
        if not stopping:
            return DispatchInterrupted("the dispatch was cancelled from outside")
        return DispatchInterrupted("the relay stopped before the dispatch ended")
