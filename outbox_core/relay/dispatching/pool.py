"""Dispatch pools: a queue of rows for each destination, and the tasks that take them to the dispatcher in time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, cast

from outbox_core.errors import DispatchInterrupted, DispatchTimeout, InvalidDispatcherReturn
from outbox_core.relay.dispatching.breaker import BreakerState
from outbox_core.relay.dispatching.call import dispatch_window
from outbox_core.relay.dispatching.slots import Slots
from outbox_core.relay.in_flight import Stage
from outbox_core.runtime import clock
from outbox_core.runtime.supervision import keep

if TYPE_CHECKING:
    from outbox_core.dispatcher import Outcome
    from outbox_core.relay.completing.settlement import Settlement
    from outbox_core.relay.dispatching.destinations import Destination
    from outbox_core.relay.in_flight import Delivery, InFlight
    from outbox_core.relay.ordering.keys import Keys
    from outbox_core.relay.shared import Shared
    from outbox_core.runtime.shutdown import Shutdown

WINDOWS: Final = 2
"""Windows at one time with a dispatcher that takes many messages at once."""
WINDOW_BATCHES: Final = 5
"""Times ``batch_size`` in a window: half of what a claim asks for while a backlog lasts."""
OVERTIME: Final = 1.0
"""Seconds a dispatcher has to end after its deadline or its cancellation before it is abandoned."""
_FAIR_SHARE: Final = 100
_FAIR_SECONDS: Final = 0.05
"""Messages, and time, a task may take without once waiting before it lets the others on."""
_STOPPED: Final = "the relay stopped"
_READY: Final = Stage.READY  # for speed: the member of an enum is a slow attribute
_DISPATCHING: Final = Stage.DISPATCHING
_CLOSED: Final = BreakerState.CLOSED
_logger: Final = logging.getLogger("outbox_core.relay")


class Worker:
    """A task of a pool. ``deliveries`` are with the dispatcher since ``since``, and have until ``deadline``."""

    __slots__ = ("abandoned", "deadline", "deliveries", "has_slot", "overdue", "since", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.deliveries: Collection[Delivery] = ()
        self.since = 0.0
        self.deadline = 0.0
        self.has_slot = True
        self.overdue = False
        self.abandoned = False

    def abandon(self, dispatcher: str, what: str) -> None:
        """Wait no more for the task, which ignored ``what``."""
        self.abandoned = True
        if self.task is not None:
            keep(self.task)
        _logger.error(
            "the dispatcher %s ignored %s and was abandoned with %d message(s); it must let CancelledError through",
            dispatcher, what, len(self.deliveries),
        )  # fmt: skip

    def interrupted(self, task: asyncio.Task[None], timeout: float, *, stopping: bool) -> BaseException:
        """Say what a cancellation meant: the deadline, or the end of the relay."""
        if self.overdue:
            self.overdue = False
            task.uncancel()
            return DispatchTimeout(f"not acknowledged within {timeout:g} s")
        if not stopping:
            return DispatchInterrupted("the dispatch was cancelled from outside")
        return DispatchInterrupted("the relay stopped before the dispatch ended")


class DispatchPool:
    """One table's rows for one destination. Takes rows in any number, has a bounded number of them with the dispatcher,
    and gives every one an outcome.

    Its tasks are its own, not a task group's, because a dispatcher that swallows its cancellation must not be able to
    hold up the relay: such a task is abandoned, and logged. One timer watches the deadlines of them all: a timer for
    each message would cost more than the rest of its way through the relay.
    """

    def __init__(
        self,
        destination: Destination,
        pools: Pools,
        settlement: Settlement,
        shutdown: Shutdown,
        *,
        timeout: float,
        slots: Slots,
        party: object,
        window: int,
    ) -> None:
        self.destination = destination
        self._gate = destination.gate
        self.ready: deque[Delivery] = deque()
        self.workers: dict[Worker, None] = {}
        self.party = party
        self.slots = 0
        self._pools = pools
        self._settlement = settlement
        self._shutdown = shutdown
        self._timeout = timeout
        self._slots = Slots(WINDOWS, shared=False) if destination.batches else slots
        self._window = window if destination.batches else 1
        self._idle: list[tuple[Worker, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._cut_off_at = inf
        destination.pools.append(self)

    def wake(self) -> None:
        """Something changed: rows came, a slot is free, or the gate opened. Sets as many tasks to work as there is work
        for. A pool in front of a closed gate takes no slot: others may have a use for it."""
        if (
            not self.ready
            or self.destination.is_open
            or self.destination.gate.holds_back(self, self.ready[0])
        ):
            return
        wanted = -(-len(self.ready) // self._window)
        while wanted > 0 and (self._idle or len(self.workers) < self._slots.total):
            if not self._slots.take(self):
                return
            if self._idle:
                worker, waiter = self._idle.pop()
                worker.has_slot = True
                if waiter.done():
                    continue  # cancelled, and about to end
                waiter.set_result(None)
            else:
                self._start()
            wanted -= 1

    def withdraw(self) -> list[Delivery]:
        """Take back every row that has not started."""
        rows = list(self.ready)
        self.ready.clear()
        self._let_go(rows)
        return rows

    async def stop(self) -> None:
        """Begin nothing more, and wait until what is with the dispatcher has ended. At the stop's deadline it is cut
        off, and abandoned if it ignores that."""
        while self._idle:
            _, waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
        try:
            await self._ended_by_deadline()
        finally:
            self._cut_off()
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=self._cut_off_at + OVERTIME / 2 - clock.now())
        if self._timer is not None:
            self._timer.cancel()
        for worker in list(self.workers):
            self._abandon(worker, "its cancellation")

    async def _ended_by_deadline(self) -> None:
        deadline = asyncio.ensure_future(self._shutdown.until_deadline())
        try:
            while (tasks := self._tasks()) and not deadline.done():
                await asyncio.wait({*tasks, deadline}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            deadline.cancel()

    def _cut_off(self) -> None:
        if self._cut_off_at == inf:
            self._cut_off_at = clock.now()
            for task in self._tasks():
                task.cancel()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [worker.task for worker in self.workers if worker.task is not None]

    def _start(self) -> None:
        worker = Worker()
        self.workers[worker] = None
        work = self._work_in_windows if self.destination.batches else self._work
        worker.task = asyncio.create_task(work(worker), name=f"outbox-dispatch-{self.destination.name}")
        worker.task.add_done_callback(lambda task: self._ended(worker, task))

    def _ended(self, worker: Worker, task: asyncio.Task[None]) -> None:
        self.workers.pop(worker, None)
        self._return_slot(worker)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._shutdown.fail(error)
        elif not self._shutdown.requested:
            self.wake()  # a dispatcher may have left its task cancelled: another takes what is ready

    async def _work(self, worker: Worker) -> None:
        """Dispatch one row after another. Every message comes this way, so it is written for speed."""
        destination, shutdown, pools = self.destination, self._shutdown, self._pools
        dispatch, leave, settle = destination.dispatch, destination.gate.leave, self._settlement.settle
        breaker, keys = destination.breaker, pools.keys
        task = cast("asyncio.Task[None]", asyncio.current_task())
        time = asyncio.get_running_loop().time
        since_pause = 0
        now = paused_at = time()
        while not shutdown.requested:
            row = self._next(now)
            if row is None:
                await self._rest(worker)
                now = time()
                continue
            worker.deliveries = (row,)
            worker.since = now
            worker.deadline = now + self._timeout
            if self._timer is None:
                self._watch(worker.deadline)
            outcome: Outcome = None
            try:
                returned = await dispatch(row.message)
                if returned is not None:
                    outcome = InvalidDispatcherReturn(destination.name, returned)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # what a dispatcher raises is the message's outcome
                outcome = error
            if worker.abandoned:
                return
            worker.deliveries = ()
            cancelled = task.cancelling()
            if worker.overdue or cancelled:
                # What it says after a cancellation is not believed: what it waited for was cut off.
                outcome = worker.interrupted(task, self._timeout, stopping=shutdown.requested)
                cancelled = task.cancelling()
            began, now = now, time()
            leave(row)
            settle(destination, row, outcome, now - began, now)
            if breaker.state is not _CLOSED:
                destination.trial_over()
            if keys.ready:
                pools.submit()
            if cancelled:
                return
            since_pause += 1
            if since_pause >= _FAIR_SHARE or now - paused_at >= _FAIR_SECONDS:
                since_pause = 0
                if self._slots.wants_back(self):
                    return
                await asyncio.sleep(0)
                now = paused_at = time()

    async def _work_in_windows(self, worker: Worker) -> None:
        """Dispatch window after window."""
        destination, time = self.destination, asyncio.get_running_loop().time
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while not self._shutdown.requested:
            now = time()
            rows: list[Delivery] = []
            while len(rows) < self._window and (row := self._next(now)) is not None:
                rows.append(row)
            if not rows:
                await self._rest(worker)
                continue
            worker.deliveries, worker.since, worker.deadline = rows, now, now + self._timeout + OVERTIME / 2
            if self._timer is None:
                self._watch(worker.deadline)
            outcomes = await dispatch_window(destination, rows, now + self._timeout)
            if worker.abandoned:
                return
            if worker.overdue or task.cancelling():
                stopping = self._shutdown.requested
                outcomes = [worker.interrupted(task, self._timeout, stopping=stopping)] * len(rows)
            self._settle_window(worker, rows, outcomes, time() - now)
            if task.cancelling():
                return
            await asyncio.sleep(0)

    def _settle_window(
        self, worker: Worker, rows: Sequence[Delivery], outcomes: Sequence[Outcome], seconds: float
    ) -> None:
        """Settle the outcomes of rows that were dispatched together, acknowledged ones first: if some of them show that
        the destination is unavailable, its breaker would open and close again with every pair."""
        destination, now = self.destination, clock.now()
        shown = self._settlement.shown_together(rows, outcomes)
        pairs = sorted(zip(rows, outcomes, strict=True), key=lambda pair: pair[1] is not None)
        worker.deliveries = left = deque(row for row, _ in pairs)
        for row, outcome in pairs:
            left.popleft()
            destination.gate.leave(row)
            self._settlement.settle(destination, row, outcome, seconds, now, shown.get(id(outcome)))
        self._settled()

    def _settled(self) -> None:
        """Outcomes were settled: another row may try the destination, and rows behind these may go on."""
        self.destination.trial_over()
        self._pools.submit()

    def _next(self, now: float) -> Delivery | None:
        """The next row to dispatch, if the gate lets it in now; those whose lease is too short are released."""
        ready, gate = self.ready, self._gate
        while ready:
            row = ready[0]
            if now >= row.expires:
                self._let_go((ready.popleft(),))
                self._settlement.release((row,), "too little of the lease was left to begin")
            elif gate.enter(row, now):
                row.stage = _DISPATCHING
                return ready.popleft()
            else:
                gate.wait(self)
                break
        return None

    def _let_go(self, rows: Sequence[Delivery]) -> None:
        self.destination.gate.withdraw(rows)
        self.destination.trial_over()

    async def _rest(self, worker: Worker) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append((worker, waiter))
        self._return_slot(worker)
        try:
            await waiter
        except BaseException:
            self._idle = [idle for idle in self._idle if idle[0] is not worker]
            raise

    def _return_slot(self, worker: Worker) -> None:
        if worker.has_slot:
            worker.has_slot = False
            self._slots.give(self)

    def _watch(self, at: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(at, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Cancel what is overdue, abandon what ignores that, and check again at the next deadline."""
        now = clock.now()
        self._timer = None
        following = [now + self._timeout]
        for worker in list(self.workers):
            if not worker.deliveries or worker.task is None:
                continue
            if not worker.overdue and now >= worker.deadline:
                worker.overdue = True
                worker.task.cancel()
            if now >= worker.deadline + OVERTIME:
                self._abandon(worker, "its deadline")
                continue
            following.append(worker.deadline + OVERTIME if worker.overdue else worker.deadline)
        if any(worker.deliveries for worker in self.workers):
            self._watch(min(following))
        self.wake()

    def _abandon(self, worker: Worker, what: str) -> None:
        if not worker.deliveries:
            return
        worker.abandon(self.destination.name, what)
        rows = worker.deliveries
        worker.deliveries = ()
        self.workers.pop(worker, None)
        self._return_slot(worker)
        now, error = clock.now(), DispatchTimeout(f"the dispatcher ignored {what}")
        for row in rows:
            self.destination.gate.leave(row)
            self._settlement.settle(self.destination, row, error, now - worker.since, now)
        self._settled()


class Pools:
    """The pools of one table, one for each destination that it has had a row for."""

    def __init__(
        self,
        shared: Shared,
        *,
        in_flight: InFlight,
        keys: Keys,
        settlement: Settlement,
    ) -> None:
        self.keys = keys
        self.submitted_at = 0.0
        """When rows last came."""
        self._settings = shared.settings
        self._destinations = shared.destinations
        self._slots = shared.slots
        self._shutdown = shared.shutdown
        self._in_flight = in_flight
        self._settlement = settlement
        self._pools: dict[Destination, DispatchPool] = {}

    def submit(self) -> None:
        """Send the rows whose turn has come on their way, each to the pool of its destination. Once a stop is
        requested, release them."""
        keys = self.keys
        while keys.ready:
            rows, keys.ready = keys.ready, []
            if self._shutdown.requested:
                self._settlement.release(rows, _STOPPED)
            else:
                self.submitted_at = clock.now()
                self._submit(rows)

    def _submit(self, rows: Sequence[Delivery]) -> None:
        max_attempts, topic, pool, is_open = self._settings.max_attempts, None, None, False
        unreadable = self._in_flight.unreadable
        submitted: dict[DispatchPool, None] = {}
        for row in rows:
            meta = row.message.meta
            if meta.attempts > max_attempts:
                self._settlement.reject_exhausted(row)
                continue
            if unreadable and (error := unreadable.get(row)) is not None:
                self._settlement.reject(row, error)
                continue
            if pool is None or meta.topic != topic:
                topic = meta.topic
                try:
                    pool = self._pool(self._destinations.of(topic))
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:
                    # A router that cannot route one message has failed that one. Nothing is waited for here, so that a
                    # cancellation is not this task's, either.
                    pool = None
                    self._settlement.reject(row, error)
                    continue
                submitted[pool] = None
                is_open = pool.destination.is_open
            if is_open:
                self._settlement.park((row,), pool.destination)
            else:
                row.stage = _READY
                pool.ready.append(row)
        for each in submitted:
            each.wake()

    def withdraw(self, where: Destination | None = None) -> list[Delivery]:
        """Take back every row that has not started, of one destination or of all."""
        if where is not None:
            pool = self._pools.get(where)
            return [] if pool is None else pool.withdraw()
        return [row for pool in self._pools.values() for row in pool.withdraw()]

    def wake(self, where: Destination) -> None:
        """A destination may take rows again."""
        pool = self._pools.get(where)
        if pool is not None:
            pool.wake()

    def backlog(self, destinations: Collection[Destination]) -> int:
        """How many rows wait for these destinations, or hold slots for them."""
        return sum(len(pool.ready) + pool.slots for each, pool in self._pools.items() if each in destinations)

    @property
    def are_dispatching(self) -> bool:
        """True when a message for one of its destinations is with a dispatcher, of this table or another."""
        return any(each.gate.dispatching for each in self._pools)

    async def stop(self) -> None:
        """Wait until all that was dispatching has ended, was cut off or abandoned: by the stop's deadline and half a
        second."""
        await asyncio.gather(*(pool.stop() for pool in self._pools.values()))

    def _pool(self, destination: Destination) -> DispatchPool:
        pool = self._pools.get(destination)
        if pool is None:
            pool = self._pools[destination] = DispatchPool(
                destination,
                self,
                self._settlement,
                self._shutdown,
                timeout=self._settings.dispatch_timeout,
                slots=self._slots,
                party=destination if self._destinations.many else self,
                window=self._settings.batch_size * WINDOW_BATCHES,
            )
        return pool
