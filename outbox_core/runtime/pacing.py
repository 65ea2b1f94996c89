"""Pacing: how much at a time, and when next."""

from __future__ import annotations

from typing import Final

MAX_PAUSE_SECONDS: Final = 15.0
"""The longest pause between two checks of everything: what seemed to take long may have been this process standing
still."""
_LEAST_PAUSE_SECONDS: Final = 1.0
_USUAL_PAUSE_SECONDS: Final = 5.0
_PAUSE_FACTOR: Final = 100.0
_LEAST_PAUSE_FACTOR: Final = 20.0


class AdaptiveLimit:
    """How much at a time: less when that was too much, more again when it was not.

    Starts at ``usual``, which `reset` returns to. `shrink` divides it by ``shrink_by``, not below ``least``; `grow`
    multiplies it by ``grow_by``, not above ``most``.
    """

    def __init__(
        self, usual: int, *, least: int = 1, most: int, grow_by: int = 2, shrink_by: int = 10
    ) -> None:
        self.value = usual
        self.most = most
        self._usual = usual
        self._least = least
        self._grow_by = grow_by
        self._shrink_by = shrink_by

    def grow(self) -> None:
        self.value = min(self.value * self._grow_by, self.most)

    def shrink(self, tried: int | None = None) -> None:
        """Less than what was ``tried``, which may have been less than allowed."""
        self.value = max(self._least, (self.value if tried is None else tried) // self._shrink_by)

    def reset(self) -> None:
        self.value = self._usual


class Every:
    """At most once in ``seconds``. ``at`` is when it is due next."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.at = 0.0

    def due(self, now: float) -> bool:
        """Say whether it is time; if so, the next time is ``seconds`` from now."""
        if now < self.at:
            return False
        self.at = now + self.seconds
        return True

    def reset(self) -> None:
        """Make it due at once."""
        self.at = 0.0


class Paced:
    """The pause after something is a multiple of how long that took, so that it never takes more than a share of the
    time.

    A check of everything is followed by a pause of 100 times its duration, but of no more than 5 seconds, unless it
    would then take more than a twentieth of the time; of a second at least, and of 15 at most. ``at`` is when it is due
    next.
    """

    def __init__(self) -> None:
        self.at = 0.0

    def ended(self, began: float, now: float) -> None:
        """Set when it is due next: what began then is over."""
        took = now - began
        usual = min(_PAUSE_FACTOR * took, _USUAL_PAUSE_SECONDS)
        pause = max(_LEAST_PAUSE_SECONDS, usual, _LEAST_PAUSE_FACTOR * took)
        self.at = now + min(pause, MAX_PAUSE_SECONDS)

    def reset(self) -> None:
        """Make it due at once."""
        self.at = 0.0

    def postpone(self, now: float) -> None:
        """It did not come to its end: others have their turn before it is tried again."""
        self.at = now + MAX_PAUSE_SECONDS
