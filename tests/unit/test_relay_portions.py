"""How many outcomes go into one write: fewer when that took too long, and more again when it does not."""

from __future__ import annotations

import pytest

from outbox_core.relay.portions import ALL, Portions
from tests.kit.tuning import Clock, stop_clock


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stop_clock(monkeypatch)


def test_all_go_together_as_long_as_that_is_quick() -> None:
    portions = Portions()
    portions.written(100.0)
    assert portions.most == ALL


def test_fewer_go_together_when_they_took_too_long_down_to_one() -> None:
    portions, seen = Portions(), list[int]()
    for _ in range(6):
        portions.too_many(min(portions.most, 1_000), 5.0)
        seen.append(portions.most)
    assert seen == [250, 62, 15, 3, 1, 1]


def test_more_go_together_again_when_they_are_quick_and_not_before() -> None:
    portions = Portions()
    portions.too_many(1_000, 5.0)
    portions.written(1.3)
    assert portions.most == 250
    for _ in range(20):
        portions.written(1.2)
    assert portions.most == ALL


def test_more_go_together_after_a_while_where_writes_always_take_long(time: Clock) -> None:
    portions, seen = Portions(), list[int]()
    portions.too_many(4, 0.5)
    for time.now in (14.0, 15.0, 29.0, 30.0):
        portions.written(0.2)
        seen.append(portions.most)
    assert seen == [1, 4, 4, 16]
