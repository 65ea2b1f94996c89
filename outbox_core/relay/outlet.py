"""The way of one table's rows to one destination: a queue and the tasks that empty it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

import anyio

from outbox_core.dispatcher import BatchDispatcher, Outcome
from outbox_core.errors import DispatchInterrupted, DispatchTimeout, InvalidDispatcherReturn
from outbox_core.relay import clock

if TYPE_CHECKING:
    from outbox_core.relay.leaves import Leaf
    from outbox_core.store import Row

WINDOWS: Final = 2
"""Windows in flight at one time to a dispatcher that takes many messages at once."""
OVERTIME: Final = 1.0
"""Seconds a dispatcher has to end after its deadline or its cancellation before it is left behind."""
_FAIR_SHARE: Final = 64

_logger: Final = logging.getLogger(__name__)

Settle = Callable[["Leaf", "Row", Outcome, float], None]


class Outlet:
    """Takes rows in any number, has a bounded number of them with the dispatcher, and gives every one an outcome.

    Its tasks are its own, not a task group's, because a dispatcher that swallows its cancellation must not be able to
    keep the relay: such a task is left behind, and said so.
    """

    def __init__(
        self,
        leaf: Leaf,
        *,
        timeout: float,
        concurrency: int,
        window: int,
        settle: Settle,
        give_back: Callable[[Sequence[Row], str], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self.leaf = leaf
        self.ready: deque[Row] = deque()
        self._timeout = timeout
        self._limit = WINDOWS if leaf.batches else concurrency
        self._window = window
        self._settle = settle
        self._give_back = give_back
        self._crashed = crashed
        self._wake = anyio.Event()
        self._idle = 0
        self._workers: dict[asyncio.Task[None], tuple[float, Sequence[Row]]] = {}
        self._stopping = False

    def submit(self, rows: Sequence[Row]) -> None:
        """Rows to dispatch, no two of one key among those in this outlet."""
        self.ready.extend(rows)
        self.poke()

    def poke(self) -> None:
        """Something changed: rows came, or the destination did."""
        if not self.ready:
            return
        wanted = (
            min(len(self.ready), self._limit)
            if not self.leaf.batches
            else 1 + (len(self.ready) > self._window)
        )
        while len(self._workers) < self._limit and wanted > self._idle:
            wanted -= 1
            task = asyncio.create_task(self._work(), name=f"outbox-dispatch-{self.leaf.name}")
            self._workers[task] = (0.0, ())
            task.add_done_callback(self._ended)
        if self._idle:
            self._wake.set()
            self._wake = anyio.Event()

    def flush(self) -> list[Row]:
        """Take back everything that is not with the dispatcher yet."""
        rows = list(self.ready)
        self.ready.clear()
        return rows

    async def stop(self, deadline: float) -> int:
        """Let what is with the dispatcher end by ``deadline``, then cut it off; the rows that had to be left behind."""
        self._stopping = True
        busy = {task for task, (_, rows) in self._workers.items() if rows}
        for task in self._workers.keys() - busy:
            task.cancel()
        if busy:
            await asyncio.wait(busy, timeout=max(deadline - clock.now(), 0))
        for task in self._workers:
            task.cancel()
        if self._workers:
            await asyncio.wait(list(self._workers), timeout=OVERTIME / 2)
        return self._leave_behind(clock.now(), "its cancellation")

    def check_overdue(self, now: float) -> None:
        """Give an outcome to rows whose dispatcher ignores that its time is over, and replace its task."""
        self._leave_behind(now, "its deadline")
        self.poke()

    def _leave_behind(self, now: float, what: str) -> int:
        left = 0
        for task, (deadline, rows) in list(self._workers.items()):
            if not rows or (now < deadline + OVERTIME and not self._stopping) or task.done():
                continue
            del self._workers[task]
            left += len(rows)
            _logger.error(
                "the dispatcher %s ignored %s and was left behind with %d message(s);"
                " it must let CancelledError through",
                self.leaf.name, what, len(rows),
            )  # fmt: skip
            for row in rows:
                self._finish(row, DispatchTimeout(f"the dispatcher ignored {what}"), deadline - self._timeout)
        return left

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._workers.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)

    async def _work(self) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        dispatched = 0
        while not self._stopping:
            rows = self._take()
            if not rows:
                self._idle += 1
                try:
                    await self._wake.wait()
                finally:
                    self._idle -= 1
                continue
            now = clock.now()
            self._workers[task] = (now + self._timeout, rows)
            if self.leaf.batches:
                await self._dispatch_window(rows, now)
            else:
                await self._dispatch(rows[0], now)
            if task not in self._workers:
                return  # left behind meanwhile
            self._workers[task] = (0.0, ())
            dispatched += len(rows)
            if dispatched >= _FAIR_SHARE:
                dispatched = 0
                await asyncio.sleep(0)

    def _take(self) -> list[Row]:
        """The next rows to dispatch, if the destination takes any now; those whose lease is too short go back."""
        taken: list[Row] = []
        late: list[Row] = []
        wanted = self._window if self.leaf.batches else 1
        now = clock.now()
        while self.ready and len(taken) < wanted:
            if now >= self.ready[0].expires:
                late.append(self.ready.popleft())
            elif self.leaf.admits(self.ready[0].id):
                row = self.ready.popleft()
                self.leaf.started(row.id, now)
                taken.append(row)
            else:
                break
        if late:
            self._give_back(late, "too little of the lease was left to begin")
        return taken

    async def _dispatch(self, row: Row, now: float) -> None:
        outcome: Outcome = None
        with anyio.CancelScope(deadline=now + self._timeout) as scope:
            try:
                outcome = cast("Outcome", await self.leaf.dispatcher.dispatch(row.message))
            except asyncio.CancelledError as error:
                outcome = self._cut_off(error, scope)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # whatever a dispatcher raises is the message's outcome
                outcome = error
            else:
                if outcome is not None:
                    outcome = InvalidDispatcherReturn(self.leaf.name, outcome)
        self._finish(row, outcome, now)

    async def _dispatch_window(self, rows: Sequence[Row], now: float) -> None:
        deadline = now + self._timeout
        outcomes: Sequence[Outcome] = ()
        with anyio.CancelScope(deadline=deadline + OVERTIME / 2) as scope:
            dispatcher = cast("BatchDispatcher", self.leaf.dispatcher)
            try:
                outcomes = await dispatcher.dispatch_many([row.message for row in rows], deadline=deadline)
                if len(outcomes) != len(rows):
                    raise InvalidDispatcherReturn(self.leaf.name, outcomes)
            except asyncio.CancelledError as error:
                outcomes = [self._cut_off(error, scope)] * len(rows)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # whatever a dispatcher raises is the messages' outcome
                outcomes = [error] * len(rows)
        for row, outcome in zip(rows, outcomes, strict=True):
            self._finish(row, outcome, now)

    def _cut_off(self, error: asyncio.CancelledError, scope: anyio.CancelScope) -> BaseException:
        if self._stopping:
            return DispatchInterrupted("the relay stopped before the dispatch ended")
        if scope.cancel_called:
            return DispatchTimeout(f"not acknowledged within {self._timeout:g} s")
        return error

    def _finish(self, row: Row, outcome: Outcome, since: float) -> None:
        if row.id in self.leaf.in_flight:
            self.leaf.ended(row.id)
            self._settle(self.leaf, row, outcome, clock.now() - since)
