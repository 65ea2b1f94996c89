"""From where on a key is checked: never past what is unresolved and not in flight, nor past what may still appear."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import pytest

from outbox_core.relay.ordering.watermarks import FROM_FIRST_SECONDS, KeyWatermarks
from outbox_core.store import KeyId, Predecessor, Tick
from tests.kit.deliveries import NIL, delivery
from tests.kit.tuning import Clock, stop_clock

K: KeyId = (NIL, "k")
OTHER: KeyId = (NIL, "other")


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stop_clock(monkeypatch, 1000.0)


def tick(*writers: str) -> Tick:
    return Tick(datetime(2030, 1, 1, tzinfo=UTC), frozenset(), frozenset(writers))


def expensive() -> KeyWatermarks:
    """After two expensive searches, with sequences up to 100 drawn and no transaction writing."""
    watermarks = KeyWatermarks()
    watermarks.timed(0.001, 0.1)
    watermarks.timed(0.001, 0.1)
    watermarks.drawn(100)
    watermarks.ticked(tick())
    watermarks.sent()
    return watermarks


def test_predecessors_are_found_in_a_step_of_its_own_now_and_then(watch: Clock) -> None:
    watermarks = KeyWatermarks()
    assert watermarks.find_separately
    watermarks.timed(0.002, 0.001)
    assert not watermarks.find_separately
    watch.now += 1.1
    assert watermarks.find_separately


def test_one_expensive_search_is_not_enough() -> None:
    watermarks = KeyWatermarks()
    watermarks.timed(0.002, 0.1)
    assert (watermarks.find_separately, watermarks.in_use) == (True, False)
    watermarks.timed(0.002, 0.001)
    watermarks.timed(0.002, 0.1)
    assert not watermarks.in_use
    watermarks.timed(0.002, 0.1)
    assert watermarks.in_use


@pytest.mark.parametrize("search", [0.0015, 0.0199])
def test_a_search_is_expensive_if_it_takes_longer_than_the_claim_and_more_than_nothing(search: float) -> None:
    watermarks = KeyWatermarks()
    for _ in range(3):
        watermarks.timed(0.02, search)
        watermarks.timed(0.001, 0.0015)
    assert not watermarks.in_use


def test_it_is_tried_again_and_ends_when_searches_are_cheap(watch: Clock) -> None:
    watermarks = expensive()
    watermarks.verified({K: 7}, {})
    watch.now += 61
    assert watermarks.find_separately
    assert watermarks.of([K]) == {}, "a trial searches from the beginning"
    watermarks.timed(0.001, 0.1)
    assert watermarks.of([K]) == {K: 7}, "still expensive: what was known is known"
    watch.now += 61
    watermarks.timed(0.001, inf)
    assert watermarks.of([K]) == {K: 7}, "it was not even brought to its end"
    watch.now += 61
    watermarks.timed(0.002, 0.001)
    assert not watermarks.find_separately
    watermarks.timed(0.001, 0.1)
    watermarks.timed(0.001, 0.1)
    assert watermarks.of([K]) == {}


def test_what_was_checked_need_not_be_again() -> None:
    watermarks = expensive()
    watermarks.verified({K: 7, OTHER: 9}, {OTHER: Predecessor(3, 1.0)})
    assert watermarks.of([K, OTHER]) == {K: 7}
    watermarks.verified({K: 5}, {})
    assert watermarks.of([K]) == {K: 7}


def test_what_goes_back_is_checked_again() -> None:
    watermarks = expensive()
    watermarks.verified({K: 7}, {})
    watermarks.lower([delivery(5, "k"), delivery(6, "k"), delivery(3, "other"), delivery(1)])
    assert watermarks.of([K, OTHER]) == {K: 4}


def test_what_went_back_while_a_claim_was_under_way_raises_no_watermark() -> None:
    watermarks = expensive()
    watermarks.lower([delivery(5, "k")])
    watermarks.verified({K: 7}, {})
    assert watermarks.of([K]) == {}
    watermarks.sent()
    watermarks.verified({K: 7}, {})
    assert watermarks.of([K]) == {K: 7}


def test_no_watermark_is_above_what_had_been_drawn_at_the_last_tick() -> None:
    watermarks = expensive()
    watermarks.drawn(200)
    watermarks.verified({K: 150}, {})
    assert watermarks.of([K]) == {K: 100}
    watermarks.ticked(tick())
    watermarks.verified({K: 150}, {})
    assert watermarks.of([K]) == {K: 150}


def test_no_watermark_is_above_what_an_open_transaction_may_have_drawn() -> None:
    watermarks = expensive()
    for drawn, writers, ceiling in (
        (200, ("a",), 100),  # it was not there when 100 had been drawn
        (300, ("a", "b"), 100),
        (400, ("b",), 200),
        (500, ("b", "c"), 200),
        (600, (), 600),
    ):
        watermarks.drawn(drawn)
        watermarks.ticked(tick(*writers))
        key = (NIL, str(drawn))
        watermarks.verified({key: 1000}, {})
        assert watermarks.of([key]) == {key: ceiling}


def test_a_transaction_from_before_the_first_tick_may_have_drawn_anything() -> None:
    watermarks = KeyWatermarks()
    watermarks.timed(0.001, inf)
    watermarks.timed(0.001, inf)
    watermarks.drawn(100)
    watermarks.ticked(tick("a"))
    watermarks.verified({K: 7}, {})
    assert watermarks.of([K]) == {K: 0}


def test_another_leader_may_have_done_anything() -> None:
    watermarks = expensive()
    watermarks.verified({K: 7}, {})
    watermarks.forget()
    assert watermarks.of([K]) == {}
    watermarks.verified({K: 7}, {})
    assert watermarks.of([K]) == {K: 0}, "it is not known what has been drawn"


def test_keys_are_not_remembered_without_end() -> None:
    watermarks = expensive()
    watermarks.verified({(NIL, str(number)): 7 for number in range(50_001)}, {})
    watermarks.verified({(NIL, "1"): 8}, {})
    watermarks.verified({(NIL, "new"): 7}, {})
    assert watermarks.of([(NIL, "0"), (NIL, "1"), (NIL, "2"), (NIL, "new")]) == {
        (NIL, "1"): 8,
        (NIL, "new"): 7,
    }


def test_a_requested_key_is_checked_from_its_first_message_on_now_and_then(watch: Clock) -> None:
    """What is replayed lies below the watermark, and claims pass over keys that are held."""
    watermarks = expensive()
    watermarks.verified({K: 7, OTHER: 8}, {})
    assert watermarks.for_requests([K]) == {}
    assert watermarks.for_requests([K, OTHER]) == {K: 7}
    watch.now += FROM_FIRST_SECONDS - 1.0
    assert watermarks.for_requests([K, OTHER]) == {K: 7, OTHER: 8}
    watch.now += 2.0
    assert watermarks.for_requests([K]) == {}
    assert watermarks.for_requests([K]) == {K: 7}
