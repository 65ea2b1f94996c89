"""The lifespan of a dispatcher: opening it before the relay uses it, and closing it after, each in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import DispatchTimeout, RelayFailed
from outbox_core.redaction import summary_of
from outbox_core.runtime import clock
from outbox_core.runtime.shutdown import first_of
from outbox_core.runtime.supervision import OVERTIME_SECONDS, ended_by, ended_within

if TYPE_CHECKING:
    from outbox_core.dispatcher import Managed
    from outbox_core.runtime.shutdown import Shutdown

OPENING_SECONDS: Final = 8.0
"""The least time to open: longer than adapters try to connect, for which an unavailable broker is no error."""
CLOSING_SECONDS: Final = 0.9
"""The time for closing after the deadline of a stop."""
_LONGEST_CLOSING_SECONDS: Final = 5.0
_CANCELLED_GRACE: Final = 1.0
_LEAST_SECONDS: Final = 0.1
_NOTE_BYTES: Final = 1024


@asynccontextmanager
async def opened(dispatcher: Managed, start_seconds: float, shutdown: Shutdown) -> AsyncGenerator[None]:
    """Enter the dispatcher, and leave it whatever happens; leaving is cut off when its time is over: 5 seconds, or the
    deadline of the stop, and 0.9 seconds.

    What leaving raises does not take the place of what ended the block: it is a note of that.

    Both happen in one task, as task groups of its own demand, and not in the relay's, which it must not be able to hold
    up. If that task is cancelled while the dispatcher is open, the relay stops; if it ends, the relay fails.
    """
    keeper = _Keeper(dispatcher, shutdown)
    try:
        await keeper.enter(start_seconds)
        yield
    except BaseException as error:
        try:
            with anyio.CancelScope(shield=True):
                await keeper.leave()
        except Exception as closing:
            if first_of(closing) is not error:
                error.add_note(f"closing the dispatcher failed, too: {summary_of(closing, b'', _NOTE_BYTES)}")
        raise
    with anyio.CancelScope(shield=True):
        await keeper.leave()


class _Keeper:
    """Keeps a dispatcher open until it has to be closed."""

    def __init__(self, dispatcher: Managed, shutdown: Shutdown) -> None:
        self._dispatcher = dispatcher
        self._shutdown = shutdown
        self._entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._task = asyncio.create_task(self._keep(), name="outbox-dispatcher")
        self._task.add_done_callback(self._ended)

    async def enter(self, seconds: float) -> None:
        """Wait until it is open. Raises what its opening raises, and `DispatchTimeout`; then it has to be left, too."""
        await asyncio.wait({self._task, self._entered}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._entered.done():
            return
        self._leaving.set()  # what comes later comes too late
        if self._task.cancelled():
            raise RelayFailed(
                "the dispatcher's __aenter__ ended with CancelledError: what it waited for was cancelled, and not by"
                " the relay; look there, or let it raise an error that says what is wrong"
            )
        if self._task.done():
            self._task.result()
        raise DispatchTimeout(f"the dispatcher did not start within {seconds:g} s")

    async def leave(self) -> None:
        """Close it, or abandon it when its time is over. Raises what its closing raises."""
        self._leaving.set()
        if not self._entered.done():
            await ended_within(self._task, 0.0, "the opening of the dispatcher")
            return
        began = clock.now()

        def over() -> float:
            close_by = min(self._shutdown.deadline, began + _LONGEST_CLOSING_SECONDS) + CLOSING_SECONDS
            return max(close_by - OVERTIME_SECONDS, began + _LEAST_SECONDS)

        if await ended_by(self._task, over, "the closing of the dispatcher") and not self._task.cancelled():
            self._task.result()

    async def _keep(self) -> None:
        async with self._dispatcher:
            if not self._leaving.is_set():
                self._entered.set_result(None)
                await self._until_leaving()

    async def _until_leaving(self) -> None:
        try:
            await self._leaving.wait()
        except asyncio.CancelledError:
            # The end of an event loop cancels all tasks, and a task group of the dispatcher's own the one it is in.
            # The relay stops in order, then, and says when to leave; to cancel again is to insist.
            self._shutdown.request(_CANCELLED_GRACE)
            await self._leaving.wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._entered.done() and not self._leaving.is_set():
            self._shutdown.fail(error or RelayFailed("the dispatcher was closed, and not by the relay"))
