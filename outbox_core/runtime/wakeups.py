"""Wake-ups: when to check for work: at once while it keeps coming, on a hint, and every so often in any case."""

from __future__ import annotations

from math import inf
from typing import Final

import anyio

from outbox_core.runtime import clock

_EAGER_SECONDS: Final = 0.06
"""Hints of a writing process come at most every 50 ms; what it commits in between is found by checking."""
_EAGER_PAUSE_SECONDS: Final = 0.001
_EAGER_PARTS: Final = 8
"""The pause between two checks is the one above or, if that is longer, the time since work was found divided by this:
what comes often is found at once, and what comes seldom is not looked for a thousand times a second."""


class Wakeups:
    """Eager after work or a hint, calm otherwise."""

    def __init__(self, poll_interval: float) -> None:
        self._poll_interval = poll_interval
        self._event = anyio.Event()
        self._stirred_at = -inf
        self._waits_until = 0.0
        self.hinted_at = 0.0
        """When the last hint came."""

    def hint(self) -> None:
        """There may be work."""
        self.hinted_at = clock.now()
        self._stirred_at = self.hinted_at
        self._event.set()

    def worked(self) -> None:
        """There was work, so more may follow."""
        self._stirred_at = clock.now()

    def interrupt(self) -> None:
        """End the wait in progress, or the next one, at once."""
        self._event.set()

    def expect(self, at: float) -> None:
        """There may be work at that time: a wait that would last longer ends now, to begin anew."""
        if at < self._waits_until:
            self._event.set()

    @property
    def idle(self) -> bool:
        """True when there has been neither work nor a hint lately."""
        return clock.now() - self._stirred_at >= _EAGER_SECONDS

    async def wait(self, at_most: float, *, eager: bool = True) -> None:
        """Wait for a hint, the next check or ``at_most`` seconds, whichever comes first. Only an ``eager`` wait is
        shorter than ``poll_interval``."""
        now = clock.now()
        quiet = now - self._stirred_at
        calm = self.idle or not eager
        pause = self._poll_interval if calm else max(_EAGER_PAUSE_SECONDS, quiet / _EAGER_PARTS)
        seconds = min(pause, max(at_most, 0.0))
        self._waits_until = now + seconds
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._waits_until = 0.0
        if self._event.is_set():
            self._event = anyio.Event()
