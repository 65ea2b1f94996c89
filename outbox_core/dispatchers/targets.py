"""Opening and closing the dispatchers that another one is made of."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import anyio

from outbox_core.dispatcher import Dispatcher, Managed, name_of

CLOSE_SECONDS: Final = 5.0
"""How long closing may take, all of them together: they are closed at the same time."""

_logger: Final = logging.getLogger(__name__)


class Targets:
    """The distinct dispatchers among those given, opened and closed once however often they are named.

    Several may have them open at a time: the first one opens them, the last one to leave closes them.
    """

    def __init__(self, dispatchers: Iterable[Dispatcher]) -> None:
        self.distinct = list({id(dispatcher): dispatcher for dispatcher in dispatchers}.values())
        self._open: list[Managed] = []
        self._openings = 0
        self._turn = anyio.Lock()

    async def open(self) -> None:
        """Open them in order; when one fails, those already open are closed again and its error is raised."""
        async with self._turn:
            if not self._openings:
                await self._open_all()
            self._openings += 1

    async def _open_all(self) -> None:
        try:
            for target in self.distinct:
                if isinstance(target, Managed):
                    await target.__aenter__()
                    self._open.append(target)
        except BaseException:  # a cancellation too must leave nothing open
            with anyio.CancelScope(shield=True):
                await self._close()
            raise

    async def close(self) -> None:
        """Close all that are open, whatever becomes of the others, in 5 s at most; raises what went wrong."""
        async with self._turn:
            self._openings = max(self._openings - 1, 0)
            failures = [] if self._openings else await self._close()
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup(f"{len(failures)} dispatchers could not be closed", failures)

    async def _close(self) -> list[Exception]:
        failures: list[Exception] = []
        closing, self._open = self._open, []
        unfinished = dict.fromkeys(map(name_of, closing))

        async def close(target: Managed) -> None:
            try:
                await target.__aexit__(None, None, None)
            except Exception as error:  # whatever one raises, the others are closed, and then it is raised
                failures.append(error)
            unfinished.pop(name_of(target), None)

        with anyio.move_on_after(CLOSE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for target in closing:
                    tasks.start_soon(close, target)
        if unfinished:
            _logger.error("not closed within %g s and given up: %s", CLOSE_SECONDS, ", ".join(unfinished))
        return failures
