"""How long to wait before trying again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import random
from typing import Final

_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """``min(base * 2 ** (n - 1), cap)`` plus up to ``jitter`` seconds, for the n-th failure."""

    base: float = 1.0
    cap: float = 60.0
    jitter: float = 0.2
    random: Callable[[], float] = random
    """Gives a number from 0 to 1; injected by tests."""

    def delay(self, failures: int) -> float:
        """Seconds to wait after the last of ``failures``; never negative, and never too large for a float."""
        exponent = min(max(failures - 1, 0), 64)
        return min(self.base * 2.0**exponent, self.cap) + self.jitter * self.random()

    def pause(self, failures: int) -> float:
        """The same between two tries of the database, within bounds: however it is set, no loop spins; and leases run
        out meanwhile, so a database that is back is noticed soon, however long it was unavailable."""
        return min(max(self.delay(failures), _SHORTEST_PAUSE), _LONGEST_PAUSE)
