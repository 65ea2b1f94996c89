"""The way of one table's rows to one destination: a queue and the tasks that empty it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, cast

from outbox_core.dispatcher import Outcome
from outbox_core.errors import DispatchTimeout, InvalidDispatcherReturn
from outbox_core.relay import clock
from outbox_core.relay.budget import Budget
from outbox_core.relay.window import dispatch_window
from outbox_core.relay.worker import Worker

if TYPE_CHECKING:
    from outbox_core.relay.in_flight import Delivery
    from outbox_core.relay.leaf import Leaf

WINDOWS: Final = 2
"""Windows in flight at one time to a dispatcher that takes many messages at once."""
OVERTIME: Final = 1.0
"""Seconds a dispatcher has to end after its deadline or its cancellation before it is left behind."""
_FAIR_SHARE: Final = 100
_FAIR_SECONDS: Final = 0.05
"""Messages, and time, a task may take without once waiting before it lets the others on."""
_HASTE_SECONDS: Final = 0.1

Settle = Callable[["Leaf", "Delivery", Outcome, float, float], None]
"""Takes the leaf, the row, the outcome, the seconds it took and the time it is now."""
SettleWindow = Callable[["Leaf", Sequence["Delivery"], Sequence[Outcome], float, float], None]


class Outlet:
    """Takes rows in any number, has a bounded number of them with the dispatcher, and gives every one an outcome.

    Its tasks are its own, not a task group's, because a dispatcher that swallows its cancellation must not be able to
    keep the relay: such a task is left behind, and said so. One timer watches the deadlines of them all: a timer for
    each message would cost more than the rest of its way through the relay.
    """

    def __init__(
        self,
        leaf: Leaf,
        *,
        timeout: float,
        budget: Budget,
        party: object,
        window: int,
        settle: Settle,
        settle_window: SettleWindow,
        give_back: Callable[[Sequence[Delivery], str], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self.leaf = leaf
        self.ready: deque[Delivery] = deque()
        self._timeout = timeout
        self._budget = Budget(WINDOWS, shared=False) if leaf.batches else budget
        self.party = party
        self.places = 0
        self._window = window if leaf.batches else 1
        self._settle = settle
        self._settle_window = settle_window
        self._give_back = give_back
        self._crashed = crashed
        self._workers: dict[Worker, None] = {}
        self._idle: list[tuple[Worker, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._stop_by = inf
        self._halting: asyncio.TimerHandle | None = None
        self._ended_at = inf

    def poke(self) -> None:
        """Something changed: rows came, or the destination did. Sets as many tasks to work as there is work for."""
        if not self.ready or self.leaf.is_open:
            return
        wanted = -(-len(self.ready) // self._window)
        while wanted > 0 and (self._idle or len(self._workers) < self._budget.places):
            if not self._budget.take(self):
                return
            if self._idle:
                worker, waiter = self._idle.pop()
                worker.has_place = True
                if waiter.done():
                    continue  # cancelled, and about to end
                waiter.set_result(None)
            else:
                self._start()
            wanted -= 1

    def place_free(self) -> None:
        """The budget has a place. Rows that their destination does not take now are of no use with it."""
        if not self.leaf.keeps_waiting(self.poke):
            self.poke()

    def flush(self) -> list[Delivery]:
        """Take back everything that is not with the dispatcher yet."""
        rows = list(self.ready)
        self.ready.clear()
        self.leaf.let_go(rows)
        return rows

    def halt(self, deadline: float) -> None:
        """Begin nothing more, and cut off by ``deadline`` what is with the dispatcher, or by an earlier one."""
        self._stopping = True
        while self._idle:
            _, waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
        if deadline < self._stop_by:
            self._stop_by = deadline
            if self._halting is not None:
                self._halting.cancel()
            self._halting = asyncio.get_running_loop().call_at(deadline, self._end_dispatches)

    async def stop(self, deadline: float) -> None:
        """Wait until what is with the dispatcher has ended, or was cut off; what does not heed that is left behind."""
        self.halt(deadline)
        try:
            while self._workers and (left := self._stop_by - clock.now()) > 0:
                await asyncio.wait(self._tasks(), timeout=min(left, _HASTE_SECONDS))
        finally:
            self._end_dispatches()
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=self._ended_at + OVERTIME / 2 - clock.now())
        for timer in (self._timer, self._halting):
            if timer is not None:
                timer.cancel()
        for worker in list(self._workers):
            self._leave_behind(worker, "its cancellation")

    def _end_dispatches(self) -> None:
        if self._ended_at == inf:
            self._ended_at = clock.now()
            for task in self._tasks():
                task.cancel()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [worker.task for worker in self._workers if worker.task is not None]

    def _start(self) -> None:
        worker = Worker()
        self._workers[worker] = None
        work = self._work_in_windows if self.leaf.batches else self._work
        worker.task = asyncio.create_task(work(worker), name=f"outbox-dispatch-{self.leaf.name}")
        worker.task.add_done_callback(lambda task: self._ended(worker, task))

    def _ended(self, worker: Worker, task: asyncio.Task[None]) -> None:
        self._workers.pop(worker, None)
        self._give_place_back(worker)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)
        elif not self._stopping:
            self.poke()  # a dispatcher may have left its task cancelled: another takes what is ready

    async def _work(self, worker: Worker) -> None:
        """Dispatch one row after another. Every message takes this way, so it is written for speed."""
        leaf, settle, dispatch = self.leaf, self._settle, self.leaf.dispatch
        task = cast("asyncio.Task[None]", asyncio.current_task())
        time = asyncio.get_running_loop().time
        since_pause = 0
        now = paused_at = time()
        while not self._stopping:
            row = self._next(now)
            if row is None:
                await self._rest(worker)
                now = time()
                continue
            worker.rows = (row,)
            worker.since = now
            worker.deadline = now + self._timeout
            if self._timer is None:
                self._watch(worker.deadline)
            outcome: Outcome = None
            try:
                returned = await dispatch(row.message)
                if returned is not None:
                    outcome = InvalidDispatcherReturn(leaf.name, returned)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # whatever a dispatcher raises is the message's outcome
                outcome = error
            if worker.left_behind:
                return
            worker.rows = ()
            cancelled = task.cancelling()
            if worker.overdue or cancelled:
                # Whatever it says after a cancellation is not believed: what it waited for was cut off.
                outcome = worker.cut_off(task, self._timeout, stopping=self._stopping)
                cancelled = task.cancelling()
            began, now = now, time()
            leaf.ended(row)
            settle(leaf, row, outcome, now - began, now)
            if cancelled:
                return
            since_pause += 1
            if since_pause >= _FAIR_SHARE or now - paused_at >= _FAIR_SECONDS:
                since_pause = 0
                if self._budget.wants_back(self):
                    return
                await asyncio.sleep(0)
                now = paused_at = time()

    async def _work_in_windows(self, worker: Worker) -> None:
        """Dispatch window after window."""
        leaf, time = self.leaf, asyncio.get_running_loop().time
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while not self._stopping:
            now = time()
            rows: list[Delivery] = []
            while len(rows) < self._window and (row := self._next(now)) is not None:
                rows.append(row)
            if not rows:
                await self._rest(worker)
                continue
            worker.rows, worker.since, worker.deadline = rows, now, now + self._timeout + OVERTIME / 2
            if self._timer is None:
                self._watch(worker.deadline)
            outcomes = await dispatch_window(leaf, rows, now + self._timeout)
            if worker.left_behind:
                return
            worker.rows = ()
            if worker.overdue or task.cancelling():
                outcomes = [worker.cut_off(task, self._timeout, stopping=self._stopping)] * len(rows)
            ended = time()
            self._settle_window(leaf, rows, outcomes, ended - now, ended)
            if task.cancelling():
                return
            await asyncio.sleep(0)

    def _next(self, now: float) -> Delivery | None:
        """The next row to dispatch, if the destination takes any now; those whose lease is too short go back."""
        ready, leaf = self.ready, self.leaf
        while ready:
            row = ready[0]
            if now >= row.expires:
                leaf.let_go((ready.popleft(),))
                self._give_back((row,), "too little of the lease was left to begin")
            elif leaf.starts(row, now):
                return ready.popleft()
            else:
                leaf.when_free(self.poke)
                break
        return None

    async def _rest(self, worker: Worker) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append((worker, waiter))
        self._give_place_back(worker)
        try:
            await waiter
        except BaseException:
            self._idle = [idle for idle in self._idle if idle[0] is not worker]
            raise

    def _give_place_back(self, worker: Worker) -> None:
        if worker.has_place:
            worker.has_place = False
            self._budget.give(self)

    def _watch(self, at: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(at, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Cancel what is overdue, leave behind what does not heed it, and look again at the next deadline."""
        now = clock.now()
        self._timer = None
        following = [now + self._timeout]
        for worker in list(self._workers):
            if not worker.rows or worker.task is None:
                continue
            if not worker.overdue and now >= worker.deadline:
                worker.overdue = True
                worker.task.cancel()
            if now >= worker.deadline + OVERTIME:
                self._leave_behind(worker, "its deadline")
                continue
            following.append(worker.deadline + OVERTIME if worker.overdue else worker.deadline)
        if any(worker.rows for worker in self._workers):
            self._watch(min(following))
        self.poke()

    def _leave_behind(self, worker: Worker, what: str) -> None:
        if not worker.rows:
            return
        worker.leave_behind(self.leaf.name, what)
        self._workers.pop(worker, None)
        self._give_place_back(worker)
        now, error = clock.now(), DispatchTimeout(f"the dispatcher ignored {what}")
        for row in worker.rows:
            self.leaf.ended(row)
            self._settle(self.leaf, row, error, now - worker.since, now)
