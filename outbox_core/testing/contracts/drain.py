"""Dispatching many messages with keys as a relay does: windows, retries, and never two of a key at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import PermanentError
from outbox_core.testing.contracts.driving import dispatch_window
from outbox_core.testing.contracts.samples import again

if TYPE_CHECKING:
    from outbox_core.dispatcher import Dispatcher
    from outbox_core.meta import DispatchedMessage

_WINDOW: Final = 200
_SECONDS: Final = 5.0
_PAUSE: Final = 0.1


class Drain:
    """Sends each message until it is acknowledged, and only then the next of its key."""

    def __init__(self, messages: Sequence[DispatchedMessage]) -> None:
        self._total = len(messages)
        self._acknowledged = 0
        self._waiting: dict[str | None, deque[DispatchedMessage]] = {}
        for message in messages:
            self._waiting.setdefault(message.meta.key, deque()).append(message)
        self._ready = deque(self._waiting)
        self._progress = anyio.Event()

    async def run(self, dispatcher: Dispatcher) -> None:
        """Return once everything is acknowledged. Raises `PermanentError` when a message is refused for good."""
        while self._acknowledged < self._total:
            keys = [self._ready.popleft() for _ in range(min(_WINDOW, len(self._ready)))]
            outcomes = await dispatch_window(dispatcher, [self._waiting[key][0] for key in keys], _SECONDS)
            for key, outcome in zip(keys, outcomes, strict=True):
                if isinstance(outcome, PermanentError):
                    raise outcome
                self._settle(key, acknowledged=outcome is None)
            self._progress.set()
            self._progress = anyio.Event()
            if any(outcome is not None for outcome in outcomes):
                await anyio.sleep(_PAUSE)

    async def reached(self, count: int) -> None:
        """Wait until so many messages are acknowledged."""
        while self._acknowledged < count:
            await self._progress.wait()

    def out_of_order(self, stored: Sequence[DispatchedMessage]) -> list[str]:
        """The keys whose messages did not first arrive in the order of their sequence."""
        last: dict[str, int] = {}
        seen: set[int] = set()
        wrong: list[str] = []
        for meta in (message.meta for message in stored):
            if meta.key is None or meta.sequence in seen:
                continue
            seen.add(meta.sequence)
            if meta.sequence < last.get(meta.key, 0):
                wrong.append(meta.key)
            last[meta.key] = meta.sequence
        return wrong

    def _settle(self, key: str | None, *, acknowledged: bool) -> None:
        queue = self._waiting[key]
        message = queue.popleft()
        if acknowledged:
            self._acknowledged += 1
        else:
            queue.appendleft(again(message))
        if queue:
            self._ready.append(key)
