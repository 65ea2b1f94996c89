"""Pacing: how much at a time, and when next."""

from __future__ import annotations

import pytest

from outbox_core.runtime.pacing import MAX_PAUSE_SECONDS, AdaptiveLimit, Every, Paced


def test_a_limit_starts_at_its_usual_value_and_returns_there() -> None:
    limit = AdaptiveLimit(100, most=1_000)
    assert limit.value == 100
    limit.grow()
    assert limit.value == 200
    limit.reset()
    assert limit.value == 100
    limit.shrink()
    limit.reset()
    assert limit.value == 100


def test_a_limit_stays_within_its_bounds() -> None:
    limit, grown, shrunk = AdaptiveLimit(100, least=7, most=350, grow_by=2, shrink_by=4), [], []
    for _ in range(3):
        limit.grow()
        grown.append(limit.value)
    for _ in range(4):
        limit.shrink()
        shrunk.append(limit.value)
    assert grown == [200, 350, 350]
    assert shrunk == [87, 21, 7, 7]


def test_a_limit_shrinks_below_what_was_tried_even_if_more_was_allowed() -> None:
    limit = AdaptiveLimit(1_000, most=1_000, shrink_by=4)
    limit.shrink(40)
    assert limit.value == 10
    limit.shrink(2)
    assert limit.value == 1


def test_something_is_due_at_most_once_in_its_seconds() -> None:
    check = Every(0.25)
    assert [check.due(now) for now in (10.0, 10.1, 10.24, 10.25, 10.3, 99.0)] == [
        True, False, False, True, False, True,
    ]  # fmt: skip
    assert check.at == 99.25


def test_a_reset_makes_it_due_at_once() -> None:
    check = Every(60.0)
    assert check.due(10.0)
    check.reset()
    assert check.due(10.1)
    assert not check.due(10.2)


@pytest.mark.parametrize(
    ("took", "pause"),
    [(0.0, 1.0), (0.008, 1.0), (0.03, 3.0), (0.1, 5.0), (0.25, 5.0), (0.5, 10.0), (1.0, 15.0), (300.0, 15.0)],
)
def test_the_pause_after_a_check_is_in_proportion_to_it_and_bounded(took: float, pause: float) -> None:
    """A process that stood still during one must not take that for its cost."""
    pace = Paced()
    pace.ended(1000.0, 1000.0 + took)
    assert pace.at - (1000.0 + took) == pytest.approx(pause)


def test_a_check_that_did_not_come_to_its_end_is_postponed() -> None:
    pace = Paced()
    pace.postpone(1000.0)
    assert pace.at == 1000.0 + MAX_PAUSE_SECONDS
    pace.reset()
    assert pace.at == 0.0
