"""Counts that may be lower bounds, how far a look goes, and rates between two looks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outbox_core.errors import ConfigError
from outbox_core.monitor import MonitorSettings
from outbox_core.status import Count, Look, rates
from tests.kit.samples import status

NONE = Count(0)


def test_a_count_says_whether_it_is_a_lower_bound() -> None:
    assert str(Count(1234)) == "1,234"
    assert str(Count(100_000, exact=False)) == "at least 100,000"
    assert Count.up_to(10, 10) == Count(10)
    assert Count.up_to(10, 11) == Count(10, exact=False)
    assert Count(1) + Count(2, exact=False) == Count(3, exact=False)


@pytest.mark.parametrize(
    "given", [{"limit": 0}, {"depth": -1}, {"limit": True}, {"depth": 1.5}, {"limit": 10**8}]
)
def test_a_look_is_bounded(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(ConfigError, match=f"{name} must be an int from 1 to 10000000"):
        Look(**given)


@pytest.mark.parametrize("interval", [0, -1.0, float("inf"), float("nan")])
def test_an_interval_is_finite_and_positive(interval: float) -> None:
    with pytest.raises(ConfigError, match="interval must be a number of seconds greater than 0"):
        MonitorSettings(interval=interval)


def test_rates_where_published_messages_stay() -> None:
    earlier = status()
    later = replace(earlier, at=earlier.at + timedelta(seconds=4), written=earlier.written + 100)
    assert (rates(earlier, later).written, rates(earlier, later).delivered) == (25.0, 5.0)
    uncertain = replace(later, published_recently=Count(10_000, exact=False))
    assert rates(earlier, uncertain).delivered is None


def test_rates_where_published_messages_are_deleted() -> None:
    earlier = replace(status(Count(10)), published_recently=NONE)
    later = replace(
        earlier,
        at=earlier.at + timedelta(seconds=2),
        written=earlier.written + 30,
        pending=Count(16),
        dead=Count(5),
    )
    # Thirty came, six more wait, and one more is dead than before.
    assert rates(earlier, later).delivered == 11.5
    assert rates(earlier, replace(later, pending=Count(16, exact=False))).delivered is None


def test_rates_need_time_to_pass() -> None:
    with pytest.raises(ConfigError, match="the second look must be later than the first"):
        rates(status(), status())
