"""How many outcomes go into one write."""

from __future__ import annotations

from typing import Final

from outbox_core.relay import clock

ALL: Final = 1_000_000
_FEWER: Final = 4
_TRY_SECONDS: Final = 15.0
"""After which more are tried, however long a write takes: it may always take so long here."""


class Portions:
    """All there are, until that was seen to take too long; then fewer, and more again when those are quick, or a while
    has passed."""

    def __init__(self) -> None:
        self.most = ALL
        self._too_long = 0.0
        self._tried_by = 0.0

    def too_many(self, count: int, seconds: float) -> None:
        """So many were not written in so many seconds."""
        self.most = max(1, count // _FEWER)
        self._too_long = seconds
        self._tried_by = clock.now() + _TRY_SECONDS

    def written(self, seconds: float) -> None:
        """A batch is through, and the longest write of it took so long."""
        now = clock.now()
        if self.most < ALL and (seconds < self._too_long / _FEWER or now >= self._tried_by):
            self.most = min(self.most * _FEWER, ALL)
            self._tried_by = now + _TRY_SECONDS
