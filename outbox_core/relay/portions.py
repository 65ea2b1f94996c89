"""How many outcomes go into one write."""

from __future__ import annotations

from typing import Final

ALL: Final = 1_000_000
_FEWER: Final = 4


class Portions:
    """All there are, until that was seen to take too long; then fewer, and more again when those are quick."""

    def __init__(self) -> None:
        self.most = ALL
        self._too_long = 0.0

    def too_many(self, count: int, seconds: float) -> None:
        """So many were not written in so many seconds."""
        self.most = max(1, count // _FEWER)
        self._too_long = seconds

    def written(self, seconds: float) -> None:
        """A batch is through, and the longest write of it took so long."""
        if self.most < ALL and seconds < self._too_long / _FEWER:
            self.most = min(self.most * _FEWER, ALL)
