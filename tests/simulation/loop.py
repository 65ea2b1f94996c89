"""An event loop on virtual time: when nothing is ready, the clock jumps to the next timer.

Tasks belong to a simulated process, named by a context variable that their children inherit. A frozen process does not
run until it is thawed; its timers then fire late, as after SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import Any

PROCESS: ContextVar[str] = ContextVar("PROCESS", default="")
"""The simulated process that the running code belongs to."""

_MAX_TURNS_IN_ONE_MOMENT = 50_000


class Livelock(RuntimeError):
    """Raised when a great deal happens and time does not go on."""


class _Ready(deque[Any]):
    """The handles to run next, without those of frozen processes."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen: dict[str, list[Any]] = {}

    def append(self, handle: Any) -> None:
        waiting = self.frozen.get(handle._context.get(PROCESS, ""))
        if waiting is None:
            super().append(handle)
        else:
            waiting.append(handle)


def _nothing() -> None:
    pass


class VirtualLoop(asyncio.BaseEventLoop):
    """Deterministic: no sockets, no threads, no wall clock."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        self._turns = 0
        self._ready = _Ready()
        self._selector = self
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def time(self) -> float:
        return self._now

    def freeze(self, process: str) -> None:
        """Stop a process; a second time does nothing."""
        if process in self._ready.frozen:
            return
        self._ready.frozen[process] = waiting = []
        for place, handle in enumerate(self._ready):
            if handle._context.get(PROCESS, "") == process:
                waiting.append(handle)
                # The loop has counted what it will run in this turn: nothing may go missing.
                self._ready[place] = asyncio.Handle(_nothing, (), self)

    def thaw(self, process: str) -> None:
        for handle in self._ready.frozen.pop(process, ()):
            self._ready.append(handle)

    def is_frozen(self, process: str) -> bool:
        return process in self._ready.frozen

    def select(self, timeout: float | None) -> list[Any]:
        """Stands in for the selector: instead of waiting, time goes on."""
        if timeout is None:
            raise RuntimeError("every task waits and no timer is set: a deadlock")
        if timeout > 0:
            self._now += timeout
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > _MAX_TURNS_IN_ONE_MOMENT:
                raise Livelock(f"{self._turns} turns of the event loop at one moment")
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
