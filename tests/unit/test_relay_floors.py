"""From where on keys are looked at: never past what is unresolved and not in hand, nor past what may still appear."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import pytest

from outbox_core.relay.floors import Floors
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


def dear() -> Floors:
    """After two looks that were dear, with sequences up to 100 drawn and nobody writing."""
    floors = Floors()
    floors.timed(0.001, 0.1)
    floors.timed(0.001, 0.1)
    floors.drawn(100)
    floors.looked(tick())
    floors.sent()
    return floors


def test_looks_are_tried_apart_now_and_then(watch: Clock) -> None:
    floors = Floors()
    assert floors.looks_apart
    floors.timed(0.002, 0.001)
    assert not floors.looks_apart
    watch.now += 1.1
    assert floors.looks_apart


def test_one_dear_look_is_not_enough() -> None:
    floors = Floors()
    floors.timed(0.002, 0.1)
    assert (floors.looks_apart, floors.in_use) == (True, False)
    floors.timed(0.002, 0.001)
    floors.timed(0.002, 0.1)
    assert not floors.in_use
    floors.timed(0.002, 0.1)
    assert floors.in_use


@pytest.mark.parametrize("look", [0.0015, 0.0199])
def test_a_look_is_dear_if_it_takes_longer_than_the_claim_and_more_than_nothing(look: float) -> None:
    floors = Floors()
    for _ in range(3):
        floors.timed(0.02, look)
        floors.timed(0.001, 0.0015)
    assert not floors.in_use


def test_it_is_tried_again_and_given_up_when_it_is_cheap(watch: Clock) -> None:
    floors = dear()
    floors.verified({K: 7}, {})
    watch.now += 61
    assert floors.looks_apart
    assert floors.of([K]) == {}, "a trial looks from the beginning"
    floors.timed(0.001, 0.1)
    assert floors.of([K]) == {K: 7}, "still dear: what was known is known"
    watch.now += 61
    floors.timed(0.001, inf)
    assert floors.of([K]) == {K: 7}, "it was not even brought to its end"
    watch.now += 61
    floors.timed(0.002, 0.001)
    assert not floors.looks_apart
    floors.timed(0.001, 0.1)
    floors.timed(0.001, 0.1)
    assert floors.of([K]) == {}


def test_what_was_looked_at_need_not_be_again() -> None:
    floors = dear()
    floors.verified({K: 7, OTHER: 9}, {OTHER: Predecessor(3, 1.0)})
    assert floors.of([K, OTHER]) == {K: 7}
    floors.verified({K: 5}, {})
    assert floors.of([K]) == {K: 7}


def test_what_goes_back_is_looked_at_again() -> None:
    floors = dear()
    floors.verified({K: 7}, {})
    floors.lower([delivery(5, "k"), delivery(6, "k"), delivery(3, "other"), delivery(1)])
    assert floors.of([K, OTHER]) == {K: 4}


def test_what_went_back_while_a_claim_was_under_way_is_not_seen_by_its_look() -> None:
    floors = dear()
    floors.lower([delivery(5, "k")])
    floors.verified({K: 7}, {})
    assert floors.of([K]) == {}
    floors.sent()
    floors.verified({K: 7}, {})
    assert floors.of([K]) == {K: 7}


def test_no_floor_is_above_what_had_been_drawn_at_the_last_look() -> None:
    floors = dear()
    floors.drawn(200)
    floors.verified({K: 150}, {})
    assert floors.of([K]) == {K: 100}
    floors.looked(tick())
    floors.verified({K: 150}, {})
    assert floors.of([K]) == {K: 150}


def test_no_floor_is_above_what_somebody_may_have_drawn_who_is_still_writing() -> None:
    floors = dear()
    for drawn, writers, ceiling in (
        (200, ("a",), 100),  # it was not there when 100 had been drawn
        (300, ("a", "b"), 100),
        (400, ("b",), 200),
        (500, ("b", "c"), 200),
        (600, (), 600),
    ):
        floors.drawn(drawn)
        floors.looked(tick(*writers))
        key = (NIL, str(drawn))
        floors.verified({key: 1000}, {})
        assert floors.of([key]) == {key: ceiling}


def test_whoever_wrote_before_the_first_look_may_have_drawn_anything() -> None:
    floors = Floors()
    floors.timed(0.001, inf)
    floors.timed(0.001, inf)
    floors.drawn(100)
    floors.looked(tick("a"))
    floors.verified({K: 7}, {})
    assert floors.of([K]) == {K: 0}


def test_another_leader_may_have_done_anything() -> None:
    floors = dear()
    floors.verified({K: 7}, {})
    floors.forget()
    assert floors.of([K]) == {}
    floors.verified({K: 7}, {})
    assert floors.of([K]) == {K: 0}, "it is not known what has been drawn"


def test_keys_are_not_remembered_without_end() -> None:
    floors = dear()
    floors.verified({(NIL, str(number)): 7 for number in range(50_001)}, {})
    floors.verified({(NIL, "1"): 8}, {})
    floors.verified({(NIL, "new"): 7}, {})
    assert floors.of([(NIL, "0"), (NIL, "1"), (NIL, "2"), (NIL, "new")]) == {(NIL, "1"): 8, (NIL, "new"): 7}


def test_a_key_is_followed_from_its_first_message_on_now_and_then(watch: Clock) -> None:
    """What is replayed lies below the floor, and claims pass over keys that are held."""
    floors = dear()
    floors.verified({K: 7, OTHER: 8}, {})
    assert floors.for_following([K]) == {}
    assert floors.for_following([K, OTHER]) == {K: 7}
    watch.now += 14.0
    assert floors.for_following([K, OTHER]) == {K: 7, OTHER: 8}
    watch.now += 2.0
    assert floors.for_following([K]) == {}
    assert floors.for_following([K]) == {K: 7}
