"""What grows is found, and what only swings is not."""

from __future__ import annotations

import pytest

from tests.faults.soak import ALLOWED, table, trends


def points(*values: float) -> list[tuple[float, float]]:
    return [(10.0 * number, value) for number, value in enumerate(values)]


@pytest.mark.parametrize("name", ALLOWED)
def test_what_grows_is_found(name: str) -> None:
    (trend,) = trends({name: points(*(50.0 + 20 * number for number in range(40)))}).values()
    assert not trend.good
    assert trend.per_hour == pytest.approx(7200)
    assert "GROWS" in table({name: trend})


@pytest.mark.parametrize("name", ALLOWED)
def test_what_swings_or_fills_up_at_first_does_not_grow(name: str) -> None:
    warming = [10.0, 20.0, 30.0, 40.0]
    (trend,) = trends({name: points(*warming, *(50.0, 51.0) * 12)}).values()
    assert trend.good
    assert (trend.early, trend.late) == (pytest.approx(50.5, abs=1), pytest.approx(50.5, abs=1))
    assert "GROWS" not in table({name: trend})


def test_too_few_samples_say_nothing() -> None:
    assert trends({"tasks": points(1.0, 2.0, 3.0)}) == {}
