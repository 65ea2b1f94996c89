"""One run of a relay, from start to stop. One shared deadline bounds every part of stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from math import inf
from random import random as system_random
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.dispatcher import Dispatcher, Managed
from outbox_core.errors import RelayFailed, StorageTimeout
from outbox_core.observer import Observer, Stopped
from outbox_core.relay import clock
from outbox_core.relay.audience import Audience
from outbox_core.relay.backoff import Backoff
from outbox_core.relay.duties import until_drained, until_stopped
from outbox_core.relay.endings import carried_out, cut_off, first, log_failed_stop
from outbox_core.relay.lanes import lanes_for
from outbox_core.relay.leaves import Leaves
from outbox_core.relay.listening import keep_listening
from outbox_core.relay.opening import OPENING_SECONDS, opened
from outbox_core.relay.standstill import watch_the_loop
from outbox_core.relay.state import RelayState

if TYPE_CHECKING:
    from outbox_core.relay.chores import Chores
    from outbox_core.relay.lane import Lane
    from outbox_core.relay.leaf import Leaf
    from outbox_core.relay.settings import RelaySettings
    from outbox_core.store import Store
    from outbox_core.table import TableName

_CANCELLED_GRACE: Final = 1.0
_RECORDING_SECONDS: Final = 0.7
"""After the grace: for the outcomes of what ended at the last moment to be recorded."""
_CLOSING_SECONDS: Final = 0.9


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
        chores: Chores,
    ) -> None:
        self.state = RelayState.STARTING
        self._tables = tables
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._audience = Audience(observers)
        self._observe = self._audience.tell
        self._random = random or system_random
        self._chores = chores
        self._running = anyio.Event()
        self._stop_asked = anyio.Event()
        self.stopped = anyio.Event()
        self._deadline = inf
        self._enforcing: asyncio.TimerHandle | None = None
        self._crash: BaseException | None = None
        self._lanes: list[Lane] = []
        self._starting = anyio.CancelScope()
        self._recording = anyio.CancelScope()
        self.loop: Final = asyncio.get_running_loop()

    @property
    def published(self) -> int:
        """How many messages this run has published."""
        return self._audience.published

    async def main(self, *, grace: float = _CANCELLED_GRACE) -> None:
        """Run until a stop is asked for. Cancelling it stops it too, with a grace of 1 s; cancelling again, at once."""
        await self._guarded(self._until_stopped, min(grace, _CANCELLED_GRACE))

    async def drain(self, timeout: float, *, patient: bool) -> bool:
        """Run until nothing is due any more or a stop is asked for; false when that took longer than ``timeout``.

        A ``patient`` one waits for tables that another relay leads, and what is in dispatch when its time is over has a
        second to end; otherwise it has ``dispatch_timeout``, as always.
        """
        late = False

        def time_is_over() -> None:  # not by a cancellation: calls of the database are carried through
            nonlocal late
            late = True
            busy = not patient and self._leaves.in_flight
            self.request_stop(self._settings.dispatch_timeout if busy else _CANCELLED_GRACE)

        async def drained(lanes: Sequence[Lane]) -> None:
            limit = self.loop.call_later(timeout, time_is_over)
            try:
                await until_drained(lanes, self._stop_asked, patient=patient)
            finally:
                limit.cancel()

        await self._guarded(drained, _CANCELLED_GRACE)
        return not late

    def request_stop(self, grace: float) -> None:
        """Ask for a stop without waiting for it. A shorter grace shortens an earlier one."""
        self._deadline = min(self._deadline, clock.now() + grace)
        if self.state is not RelayState.STOPPED:
            self.state = RelayState.STOPPING
            if self._enforcing is not None:
                self._enforcing.cancel()
            # Database calls are carried through: when nothing answers they would keep a relay that is to stop.
            self._enforcing = self.loop.call_at(self._deadline + _RECORDING_SECONDS, self._store.abort)
        self._stop_asked.set()
        if not self._running.is_set():
            self._starting.cancel()
        for lane in self._lanes:
            lane.halt(self._deadline)
        self._recording.deadline = min(self._recording.deadline, self._deadline + _RECORDING_SECONDS)

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

    async def _guarded(self, work: Callable[[Sequence[Lane]], Awaitable[None]], grace: float) -> None:
        """Do the work in a task of its own, so that a cancellation stops it in order instead of tearing it up."""
        task = asyncio.create_task(self._work(work), name="outbox-relay-run")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self.request_stop(grace)
                await self._finish(task)
                log_failed_stop(task)
            raise
        finally:
            self.state = RelayState.STOPPED
            if self._enforcing is not None:
                self._enforcing.cancel()
            self.stopped.set()

    async def _finish(self, task: asyncio.Task[None]) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await asyncio.wait({task}, timeout=max(self._deadline - clock.now(), 0) + 1.0)
            finally:
                if not task.done():
                    self._store.abort()
                    task.cancel()
                    await asyncio.wait({task}, timeout=1.0)

    async def _work(self, work: Callable[[Sequence[Lane]], Awaitable[None]]) -> None:
        try:
            async with AsyncExitStack() as stack:
                with self._starting:
                    await self._open(stack)
                if not self._stop_asked.is_set():
                    await self._serve(work)
                # In here, so that what the closing of the dispatcher raises does not take its place.
                if self._crash is not None:
                    raise self._crash
        except BaseExceptionGroup as group:
            raise first(group) from None
        finally:
            with anyio.CancelScope(shield=True):
                await self._store.close()
            in_hand = {lane.table: lane.in_flight.rows for lane in self._lanes}
            for table in self._tables:
                self._observe(Stopped(table, datetime.now(UTC), in_hand.get(table, 0)))

    async def _serve(self, work: Callable[[Sequence[Lane]], Awaitable[None]]) -> None:
        self._lanes = self._make_lanes()
        if self.state is RelayState.STARTING:
            self.state = RelayState.RUNNING
        self._running.set()
        try:
            await self._lead(work)
        except BaseExceptionGroup as group:
            raise first(group) from None

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            with anyio.fail_after(6 * self._settings.database_timeout):
                await self._store.open(self._tables)
        except TimeoutError:
            raise StorageTimeout("the database did not let the relay start in time") from None
        if isinstance(self._dispatcher, Managed):
            start_seconds = max(self._settings.dispatch_timeout, OPENING_SECONDS)
            stop = partial(self.request_stop, _CANCELLED_GRACE)
            await stack.enter_async_context(
                opened(self._dispatcher, start_seconds, self._close_by, stop, self._crashed)
            )

    def _close_by(self, began: float) -> float:
        """When the dispatcher's closing, begun then, is to be over; a shorter grace meanwhile makes it earlier."""
        return min(self._deadline, began + 5.0) + _CLOSING_SECONDS

    def _make_lanes(self) -> list[Lane]:
        settings = self._settings
        backoff = Backoff(settings.backoff_base, settings.backoff_cap, settings.backoff_jitter, self._random)
        self._leaves = leaves = Leaves(self._dispatcher, backoff, settings.dispatch_timeout)
        return lanes_for(self._tables, self._store, settings, backoff, leaves, self._observe, self._crashed)

    async def _lead(self, work: Callable[[Sequence[Lane]], Awaitable[None]]) -> None:
        async with anyio.create_task_group() as leaders:
            leaders.start_soon(carried_out, partial(watch_the_loop, self._tables[0]), self._crashed)
            if self._settings.single_active:
                for lane in self._lanes:
                    leaders.start_soon(carried_out, lane.leader.run, self._crashed)
            else:
                takeover = self._settings.takeover
                listening = partial(keep_listening, self._store, self._tables[0], takeover, self._observe)
                leaders.start_soon(carried_out, listening, self._crashed)
            await self._complete(work)
            leaders.cancel_scope.cancel()

    async def _complete(self, work: Callable[[Sequence[Lane]], Awaitable[None]]) -> None:
        failure: Exception | None = None
        async with anyio.create_task_group() as completers:
            for lane in self._lanes:
                completers.start_soon(self._record, lane)
            try:
                await self._claim(work)
                self._deadline = min(self._deadline, clock.now() + self._settings.dispatch_timeout + 5.0)
            except Exception as error:
                self._deadline = min(self._deadline, clock.now() + _CANCELLED_GRACE)
                failure = error  # raised when outcomes are on record and rows given back
            except BaseException:
                self._deadline = clock.now()
                raise
            finally:
                await self._stop_lanes()
            self._recording = completers.cancel_scope
            self._recording.deadline = self._deadline + _RECORDING_SECONDS
        if failure is not None:
            raise failure

    async def _stop_lanes(self) -> None:
        """Stop all lanes at once, by the one deadline, whatever else happens."""
        if self.state is not RelayState.STOPPED:
            self.state = RelayState.STOPPING
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as stopping:
                for lane in self._lanes:
                    stopping.start_soon(lane.stop, self._deadline)

    async def _claim(self, work: Callable[[Sequence[Lane]], Awaitable[None]]) -> None:
        ended = False
        async with anyio.create_task_group() as claimers:

            def watch(leaf: Leaf) -> None:
                claimers.start_soon(leaf.watch, min(5.0, self._settings.dispatch_timeout))

            self._leaves.found = watch
            for lane in self._lanes:
                claimers.start_soon(lane.watch)
                claimers.start_soon(lane.admit)
            try:
                await work(self._lanes)
                ended = True
            finally:
                self._leaves.found = None
            claimers.cancel_scope.cancel()
        if not ended:
            raise cut_off()

    async def _until_stopped(self, lanes: Sequence[Lane]) -> None:
        chores = self._chores.of(self._store, self._tables, self._observe)
        await until_stopped(lanes, chores, self._stop_asked)

    async def _record(self, lane: Lane) -> None:
        """Put a lane's outcomes on record. If that dies, what it was at is left to its lease, and the rest is not."""
        if not await carried_out(lane.complete, self._crashed):
            await carried_out(lane.complete, self._crashed)

    def _crashed(self, error: BaseException) -> None:
        """A part has died: the relay stops in order, so that no row stays leased."""
        self._crash = self._crash or first(error)
        self.request_stop(0.0)
