"""What grows is found, and what only swings is not."""

from __future__ import annotations

import pytest

from tests.faults.soak import LIMITS, problems, table, trends


def points(*values: float) -> list[tuple[float, float]]:
    return [(10.0 * number, value) for number, value in enumerate(values)]


@pytest.mark.parametrize("name", LIMITS)
def test_what_grows_is_found(name: str) -> None:
    (trend,) = trends({name: points(*(50.0 + 20 * number for number in range(40)))}).values()
    assert not trend.good
    assert trend.per_hour == pytest.approx(7200)
    assert "GROWS" in table({name: trend})
    assert problems({name: trend})[0].startswith(f"{name} grew by ")


@pytest.mark.parametrize("name", LIMITS)
def test_what_swings_or_fills_up_at_first_does_not_grow(name: str) -> None:
    warming = [10.0 + 3 * number for number in range(12)]
    (trend,) = trends({name: points(*warming, *(50.0, 51.0) * 12)}).values()
    assert trend.good
    assert trend.mean == pytest.approx(50.5, abs=0.1)
    assert "GROWS" not in table({name: trend})


def test_one_relay_that_grows_is_not_hidden_by_another_that_shrinks() -> None:
    up, down = [50.0 + number for number in range(40)], [90.0 - number for number in range(40)]
    found = trends({"memory_mb r0.0": points(*up), "memory_mb r1.0": points(*down)})
    assert {name: trend.good for name, trend in found.items()} == {
        "memory_mb r0.0": False,
        "memory_mb r1.0": True,
    }


def test_a_slow_leak_is_found_in_an_hour() -> None:
    """Four megabytes of sixty, in an hour: more than the noise and a share."""
    leaking = [60.0 + number / 90 for number in range(360)]
    (trend,) = trends({"memory_mb r0.0": points(*leaking)}).values()
    assert not trend.good


def test_a_soak_that_is_too_short_to_warm_up_says_nothing() -> None:
    assert trends({"tasks": [(float(number), 1.0) for number in range(100)]}) == {}


def test_too_few_samples_say_nothing_which_is_a_problem() -> None:
    assert trends({"tasks": points(1.0, 2.0, 3.0), "files": []}) == {}
    assert "tasks was measured too rarely to say anything" in problems({})
