"""The clock that only a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from outbox_core.errors import ConfigError
from outbox_core.testing import VirtualClock


def test_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock(datetime(2026, 5, 1, 12, tzinfo=UTC))
    assert clock() == clock() == datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert clock.advance(hours=1, seconds=30) == datetime(2026, 5, 1, 13, 0, 30, tzinfo=UTC)
    assert clock.advance(timedelta(days=1), minutes=1) == datetime(2026, 5, 2, 13, 1, 30, tzinfo=UTC)
    assert clock() == datetime(2026, 5, 2, 13, 1, 30, tzinfo=UTC)
    assert repr(clock) == "VirtualClock(2026-05-02T13:01:30+00:00)"


def test_shows_utc() -> None:
    clock = VirtualClock(datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2))))
    assert clock() == datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert clock().tzinfo is UTC


def test_never_goes_back() -> None:
    clock = VirtualClock(datetime(2026, 5, 1, tzinfo=UTC))
    with pytest.raises(ConfigError, match="forward only"):
        clock.advance(seconds=-1)
    with pytest.raises(
        ConfigError, match=r"it is 2026-05-01T00:00:00\+00:00, after 2026-04-30T00:00:00\+00:00"
    ):
        clock.set(datetime(2026, 4, 30, tzinfo=UTC))
    assert clock.set(datetime(2026, 5, 3, tzinfo=UTC)) == clock() == datetime(2026, 5, 3, tzinfo=UTC)


@pytest.mark.parametrize("value", [datetime(2026, 5, 1), 17, None])  # noqa: DTZ001 - what is refused
def test_needs_a_moment_that_means_one(value: datetime) -> None:
    with pytest.raises(ConfigError, match="a datetime with a time zone"):
        VirtualClock(value)
