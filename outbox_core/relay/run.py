"""One run of a relay, from start to stop. One shared deadline bounds every part of stopping."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from random import random as system_random
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.dispatcher import Dispatcher, Managed
from outbox_core.errors import RelayFailed, StorageError, StorageTimeout
from outbox_core.observer import Observer, Reconnecting, Stopped
from outbox_core.relay.dispatching.destinations import Destinations
from outbox_core.relay.dispatching.lifespan import OPENING_SECONDS, opened
from outbox_core.relay.dispatching.slots import Slots
from outbox_core.relay.pipeline import TablePipeline
from outbox_core.relay.settings import HEARTBEATS
from outbox_core.relay.shared import Observers, Shared
from outbox_core.runtime import clock
from outbox_core.runtime.backoff import Backoff
from outbox_core.runtime.shutdown import Shutdown, first_of
from outbox_core.runtime.supervision import supervise, watch_event_loop

if TYPE_CHECKING:
    from outbox_core.relay.maintenance import Maintenance
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.store import Store
    from outbox_core.table import TableName

_CANCELLED_GRACE: Final = 1.0
_RECORDING_SECONDS: Final = 0.7
"""After the grace: for the verdicts of what ended at the last moment to be recorded."""
_DRAINED_SECONDS: Final = 5.0
_PROBE_SECONDS: Final = 5.0
_logger: Final = logging.getLogger("outbox_core.relay")


class RelayState(StrEnum):
    """A relay is in one of these; from stopped it can be started again."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Run:
    """Used once. `main` does the work; `request_stop` and `stop` may be called at any time, from the same loop."""

    def __init__(
        self,
        tables: Sequence[TableName],
        store: Store,
        settings: RelaySettings,
        dispatcher: Dispatcher,
        observers: Sequence[Observer],
        random: Callable[[], float] | None,
        maintenance: Maintenance,
    ) -> None:
        self._tables = tables
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._observers = Observers(observers)
        self._random = random or system_random
        self._maintenance = maintenance
        self._shutdown = Shutdown()
        self._running = anyio.Event()
        self.stopped = anyio.Event()
        self._pipelines: list[TablePipeline] = []
        self._starting = anyio.CancelScope()
        self._recording: anyio.CancelScope | None = None
        self._recording_over = False
        self.loop: Final = asyncio.get_running_loop()

    @property
    def state(self) -> RelayState:
        if self.stopped.is_set():
            return RelayState.STOPPED
        if self._shutdown.requested:
            return RelayState.STOPPING
        return RelayState.RUNNING if self._running.is_set() else RelayState.STARTING

    @property
    def published(self) -> int:
        """How many messages this run has published."""
        return self._observers.published

    async def main(self, *, grace: float = _CANCELLED_GRACE) -> None:
        """Run until a stop is requested. Cancelling it stops it too, with a grace of 1 s; cancelling again, at once."""
        await self._guarded(self._deliver, min(grace, _CANCELLED_GRACE))

    async def drain(self, timeout: float, *, patient: bool) -> bool:
        """Run until nothing is due any more or a stop is requested; false when that took longer than ``timeout``.

        A ``patient`` one waits for tables that another relay leads, and what is in dispatch when its time is over has a
        second to end; otherwise it has ``dispatch_timeout``, as always.
        """
        late = False

        def time_is_over() -> None:  # not by a cancellation: calls of the database are carried through
            nonlocal late
            late = True
            busy = not patient and self._destinations.are_dispatching
            self.request_stop(self._settings.dispatch_timeout if busy else _CANCELLED_GRACE)

        async def drained() -> None:
            limit = self.loop.call_later(timeout, time_is_over)
            try:
                await self._drain(patient=patient)
            finally:
                limit.cancel()

        await self._guarded(drained, _CANCELLED_GRACE)
        return not late

    def request_stop(self, grace: float) -> None:
        """Ask for a stop without waiting for it. A shorter grace shortens an earlier one."""
        self._shutdown.request(grace)

    async def stop(self, grace: float) -> None:
        """Ask for a stop and wait for its end: the grace and 1 s at most."""
        self.request_stop(grace)
        with anyio.CancelScope(shield=True), anyio.move_on_after(grace + 1.0):
            await self.stopped.wait()

    async def wait_until_running(self, task: asyncio.Task[None]) -> None:
        """Wait until the run has started, or raise what ended it."""
        waiting = asyncio.ensure_future(self._running.wait())
        try:
            await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if task.done():
            await task
        if not self._running.is_set():
            raise RelayFailed("the relay was stopped before it was running")

    async def _guarded(self, work: Callable[[], Awaitable[None]], grace: float) -> None:
        """Do the work in a task of its own, so that a cancellation stops it in order instead of tearing it up."""
        task = asyncio.create_task(self._work(work), name="outbox-relay-run")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self.request_stop(grace)
                await self._finish(task)
                _log_failed_stop(task)
            raise
        finally:
            self.stopped.set()

    async def _enforce_stop(self) -> None:
        """Once a stop is requested, do not wait for what may never end: the start, and calls of the database, which
        are carried through and would keep a relay when nothing answers."""
        await self._shutdown.wait()
        if not self._running.is_set():
            self._starting.cancel()
        await self._shutdown.until_deadline(_RECORDING_SECONDS)
        self._recording_over = True
        if self._recording is not None:
            self._recording.cancel()
        self._store.abort()

    async def _finish(self, task: asyncio.Task[None]) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await asyncio.wait({task}, timeout=max(self._shutdown.deadline - clock.now(), 0) + 1.0)
            finally:
                if not task.done():
                    self._store.abort()
                    task.cancel()
                    await asyncio.wait({task}, timeout=1.0)

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        enforcer = asyncio.create_task(self._enforce_stop(), name="outbox-relay-stop")
        try:
            async with AsyncExitStack() as stack:
                with self._starting:
                    await self._open(stack)
                if not self._shutdown.requested:
                    self._make_pipelines()
                    self._running.set()
                    await self._lead(work)
                # In here, so that what the closing of the dispatcher raises does not take its place.
                if self._shutdown.error is not None:
                    raise self._shutdown.error
        except BaseExceptionGroup as group:
            raise first_of(group) from None
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await self._store.close()
                finally:
                    enforcer.cancel()
                    await asyncio.wait({enforcer})
            in_flight = {pipeline.table: pipeline.in_flight.rows for pipeline in self._pipelines}
            for table in self._tables:
                self._observers.notify(Stopped(table, datetime.now(UTC), in_flight.get(table, 0)))

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            with anyio.fail_after(6 * self._settings.database_timeout):
                await self._store.open(self._tables)
        except TimeoutError:
            raise StorageTimeout("the database did not let the relay start in time") from None
        if isinstance(self._dispatcher, Managed):
            start_seconds = max(self._settings.dispatch_timeout, OPENING_SECONDS)
            await stack.enter_async_context(opened(self._dispatcher, start_seconds, self._shutdown))

    def _make_pipelines(self) -> None:
        settings = self._settings
        backoff = Backoff(settings.backoff_base, settings.backoff_cap, settings.backoff_jitter, self._random)
        self._destinations = destinations = Destinations(self._dispatcher, backoff, settings.dispatch_timeout)
        shared = Shared(
            store=self._store,
            settings=settings,
            backoff=backoff,
            destinations=destinations,
            slots=Slots(settings.concurrency, shared=destinations.many or len(self._tables) > 1),
            observers=self._observers,
            shutdown=self._shutdown,
        )
        self._pipelines = [TablePipeline(table, shared) for table in self._tables]
        self._store.listen(self._tables, self._hinted)

    def _hinted(self, table: TableName | None) -> None:
        for pipeline in self._pipelines:
            if table is None or pipeline.table == table:
                pipeline.wakeups.hint()

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Lead the tables while the work is done, and resign after it."""
        async with anyio.create_task_group() as leaders:
            leaders.start_soon(supervise, partial(watch_event_loop, str(self._tables[0])), self._shutdown)
            if self._settings.single_active:
                for pipeline in self._pipelines:
                    leaders.start_soon(supervise, pipeline.leader.run, self._shutdown)
            else:
                leaders.start_soon(supervise, self._keep_listening, self._shutdown)
            await self._complete(work)
            leaders.cancel_scope.cancel()

    async def _keep_listening(self) -> None:
        """See to it that hints can arrive where no table is led, as often as a leader would: an election uses the same
        session, and there is none."""
        interval = self._settings.takeover / HEARTBEATS
        while True:
            try:
                await self._store.keep_listening()
            except StorageError as error:
                self._observers.notify(Reconnecting(self._tables[0], str(error), interval))
            await anyio.sleep(interval)

    async def _complete(self, work: Callable[[], Awaitable[None]]) -> None:
        """Record verdicts while the work is done, and after it until all are on record or their time is over."""
        async with anyio.create_task_group() as completers:
            for pipeline in self._pipelines:
                completers.start_soon(self._record, pipeline)
            try:
                await work()
                self.request_stop(self._settings.dispatch_timeout + _DRAINED_SECONDS)
            except Exception as error:
                self._shutdown.fail(error, _CANCELLED_GRACE)
            except BaseException:
                self.request_stop(0.0)
                raise
            finally:
                await self._finish_pipelines()
            self._recording = completers.cancel_scope
            if self._recording_over:
                self._recording.cancel()

    async def _record(self, pipeline: TablePipeline) -> None:
        """Record the verdicts of a table. If that dies, what it was at is left to its lease, and the rest is not."""
        if not await supervise(pipeline.complete, self._shutdown):
            await supervise(pipeline.complete, self._shutdown)

    async def _finish_pipelines(self) -> None:
        """Stop all tables at once, by the one deadline, whatever else happens."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as finishing:
                for pipeline in self._pipelines:
                    finishing.start_soon(pipeline.finish)

    async def _deliver(self) -> None:
        """Deliver until a stop is requested, and do maintenance beside it."""
        maintenance = self._maintenance.loops(self._store, self._tables, self._observers)
        async with anyio.create_task_group() as running:
            for pipeline in self._pipelines:
                running.start_soon(supervise, pipeline.run, self._shutdown, _CANCELLED_GRACE)
            for loop in (self._watch_destinations, *maintenance):
                running.start_soon(self._until_stop, loop)

    async def _drain(self, *, patient: bool) -> None:
        """Deliver until all tables are drained, or a stop is requested."""
        async with anyio.create_task_group() as running:
            for pipeline in self._pipelines:
                drain = partial(pipeline.drain, patient=patient)
                running.start_soon(supervise, drain, self._shutdown, _CANCELLED_GRACE)
            running.start_soon(self._until_stop, self._watch_destinations)
            running.start_soon(self._until_stop, self._stop_when_drained)

    async def _stop_when_drained(self) -> None:
        for pipeline in self._pipelines:
            await pipeline.drained.wait()
        self.request_stop(self._settings.dispatch_timeout + _DRAINED_SECONDS)

    async def _watch_destinations(self) -> None:
        await self._destinations.watch(min(_PROBE_SECONDS, self._settings.dispatch_timeout))

    async def _until_stop(self, loop: Callable[[], Awaitable[None]]) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(supervise, loop, self._shutdown, _CANCELLED_GRACE)
            await self._shutdown.wait()
            group.cancel_scope.cancel()


def _log_failed_stop(task: asyncio.Task[None]) -> None:
    """Log what a stop ended with, of a run that was cancelled and so raises that."""
    error = None if not task.done() or task.cancelled() else task.exception()
    if error is not None:
        _logger.error(
            "the relay was cancelled, and its stop ended with %s; it is stopped",
            type(error).__name__,
            exc_info=error,
        )
