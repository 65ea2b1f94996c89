"""How many verdicts go into one write: fewer when that took too long, and more again when it does not."""

from __future__ import annotations

import pytest

from outbox_core.relay.completing.completer import ALL, WriteLimit
from tests.kit.tuning import Clock, stop_clock


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stop_clock(monkeypatch)


def test_all_go_together_as_long_as_that_is_quick() -> None:
    limit = WriteLimit()
    limit.written(100.0)
    assert limit.value == ALL


def test_fewer_go_together_when_they_took_too_long_down_to_one() -> None:
    limit, seen = WriteLimit(), list[int]()
    for _ in range(6):
        limit.too_many(min(limit.value, 1_000), 5.0)
        seen.append(limit.value)
    assert seen == [250, 62, 15, 3, 1, 1]


def test_more_go_together_again_when_they_are_quick_and_not_before() -> None:
    limit = WriteLimit()
    limit.too_many(1_000, 5.0)
    limit.written(1.3)
    assert limit.value == 250
    for _ in range(20):
        limit.written(1.2)
    assert limit.value == ALL


def test_more_go_together_after_a_while_where_writes_always_take_long(time: Clock) -> None:
    limit, seen = WriteLimit(), list[int]()
    limit.too_many(4, 0.5)
    for time.now in (14.0, 15.0, 29.0, 30.0):
        limit.written(0.2)
        seen.append(limit.value)
    assert seen == [1, 4, 4, 16]
