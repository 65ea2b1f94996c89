"""Shutdown: whether a stop is requested, by when it must be over, and which error ended the run."""

from __future__ import annotations

import asyncio
from math import inf
from typing import cast

import anyio

from outbox_core.runtime import clock


class Shutdown:
    """One per run, given to every part. No part copies the flag or the deadline: it asks here, or waits here."""

    def __init__(self) -> None:
        self.requested = False
        self.deadline = inf
        """When what has started must have ended, on the run's monotonic clock. It only ever moves closer."""
        self.error: BaseException | None = None
        """The first error that ended the run."""
        self._changed = asyncio.Event()

    def request(self, grace: float) -> None:
        """Ask for a stop within ``grace`` seconds. May be called again and again: a shorter grace shortens an earlier
        one."""
        self.requested = True
        self.deadline = min(self.deadline, clock.now() + grace)
        self._changed.set()
        self._changed = asyncio.Event()

    def fail(self, error: BaseException, grace: float = 0.0) -> None:
        """Ask for a stop because of an error, which the run raises at its end if it is the first."""
        if self.error is None:
            self.error = first_of(error)
        self.request(grace)

    async def wait(self) -> None:
        """Wait until a stop is requested."""
        while not self.requested:
            await self._changed.wait()

    async def until_deadline(self, extra: float = 0.0) -> None:
        """Wait until a stop is requested and its deadline was ``extra`` seconds ago, also one that moves closer."""
        await self.wait()
        while (left := self.deadline + extra - clock.now()) > 0:
            with anyio.move_on_after(left):
                await self._changed.wait()


def first_of(error: BaseException) -> BaseException:
    """The error that ended the run, of a group: what came with it is of no more use to its reader."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
