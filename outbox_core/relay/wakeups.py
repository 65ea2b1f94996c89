"""When to look for work: at once while it keeps coming, on a hint, and every so often in any case."""

from __future__ import annotations

from typing import Final

import anyio

from outbox_core.relay import clock

_EAGER_SECONDS: Final = 0.06
"""Hints of a writing process come at most every 50 ms; what it commits in between is found by looking."""
_EAGER_PAUSE_SECONDS: Final = 0.002


class Wakeups:
    """Eager after work or a hint, calm otherwise."""

    def __init__(self, poll_interval: float) -> None:
        self._poll_interval = poll_interval
        self._event = anyio.Event()
        self._eager_until = 0.0
        self.hinted_at = 0.0
        """When the last hint came."""

    def hint(self) -> None:
        """There may be work."""
        self.hinted_at = clock.now()
        self._eager_until = self.hinted_at + _EAGER_SECONDS
        self._event.set()

    def worked(self) -> None:
        """There was work, so more may follow."""
        self._eager_until = clock.now() + _EAGER_SECONDS

    def interrupt(self) -> None:
        """End the wait in progress, or the next one, at once."""
        self._event.set()

    @property
    def idle(self) -> bool:
        """Whether there has been neither work nor a hint lately."""
        return clock.now() >= self._eager_until

    async def wait(self, at_most: float) -> None:
        """Wait for a hint, the next look or ``at_most`` seconds, whichever comes first."""
        pause = self._poll_interval if self.idle else _EAGER_PAUSE_SECONDS
        with anyio.move_on_after(min(pause, max(at_most, 0.0))):
            await self._event.wait()
        if self._event.is_set():
            self._event = anyio.Event()
