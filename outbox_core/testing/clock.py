"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from outbox_core.errors import ConfigError

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """The time of an in-memory outbox, in UTC: what is delayed or backing off becomes due when the test says so.

        clock = VirtualClock()
        clock.advance(hours=2)

    It begins at 2026-01-01 00:00 unless told otherwise, and never goes back, like the clock of a database.
    """

    def __init__(self, start: datetime = START) -> None:
        self._now = _moment(start)

    def __call__(self) -> datetime:
        """Now."""
        return self._now

    def advance(
        self,
        by: timedelta = timedelta(0),
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Go on by the sum of the durations, and return the new time."""
        step = by + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if step < timedelta(0):
            raise ConfigError(f"a clock goes forward only, and {step} is negative")
        self._now += step
        return self._now

    def set(self, moment: datetime) -> datetime:
        """Go on to a moment, which must not be in the past of this clock."""
        later = _moment(moment)
        if later < self._now:
            raise ConfigError(
                f"a clock goes forward only: it is {self._now.isoformat()}, after {later.isoformat()}"
            )
        self._now = later
        return later

    def __repr__(self) -> str:
        return f"VirtualClock({self._now.isoformat()})"


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ConfigError(f"a clock shows a datetime with a time zone, got {value!r}")
    return value.astimezone(UTC)
