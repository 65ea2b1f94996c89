"""Reading on from a place never passes a row that may still appear."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_core.relay.position import ScanPosition
from outbox_core.store import BEGINNING, Position, Tick

START = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def looked(*ticks: tuple[float, set[int]]) -> ScanPosition:
    position = ScanPosition()
    for seconds, running in ticks:
        position.looked(Tick(at(seconds), frozenset(running), frozenset()))
        position.sent()
        position.read(None)
    return position


def test_nothing_is_skipped_before_the_second_look() -> None:
    assert ScanPosition().position == BEGINNING
    assert looked((0, set())).position == BEGINNING


def test_a_short_claim_reads_on_from_before_the_previous_look() -> None:
    assert looked((10, set()), (10.25, set())).position == (at(9.5), 0)


def test_a_full_claim_reads_on_from_its_last_row() -> None:
    position = looked((10, set()), (10.25, set()))
    position.sent()
    position.read((at(10.1), 77))
    assert position.position == (at(10.1), 77)


def test_a_transaction_that_ends_takes_the_position_back_to_before_it_began() -> None:
    position = looked((10, set()), (11, {5}), (20, {5}), (30, {5}))
    assert position.position == (at(19.5), 0)
    position.looked(Tick(at(40), frozenset(), frozenset()))
    assert position.position == (at(9.5), 0)


def test_a_transaction_from_before_the_first_look_takes_it_to_the_beginning() -> None:
    position = looked((10, {5}), (20, {5}), (30, {5}))
    position.looked(Tick(at(40), frozenset(), frozenset()))
    assert position.position == BEGINNING


def test_a_clock_set_back_takes_it_to_the_beginning() -> None:
    position = looked((10, set()), (20, set()), (30, set()))
    position.looked(Tick(at(25), frozenset(), frozenset()))
    assert position.position == BEGINNING


def test_rows_given_back_are_read_again_and_later_ones_change_nothing() -> None:
    position = looked((10, set()), (20, set()))
    position.back_to([(at(5), 3), (at(7), 1)])
    assert position.position == (at(5), 3)
    position.back_to([(at(99), 1)])
    assert position.position == (at(5), 3)


@dataclass
class Writer:
    xid: int
    stamps: list[Position] = field(default_factory=list)


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_after_a_look_no_committed_row_lies_behind_the_position(seed: int) -> None:
    """Writers take an id, stamp rows, and commit or roll back whenever they like; looks are late, claims bounded."""
    random = Random(seed)
    position = ScanPosition()
    now, sequence, xid = 0.0, 0, 0
    writers: list[Writer] = []
    waiting: set[Position] = set()
    for _ in range(120):
        now += random.choice((0.0, 0.01, 0.2, 3.0))
        action = random.choice(("begin", "stamp", "stamp", "end", "look", "look", "claim"))
        if action == "begin":
            xid += 1
            writers.append(Writer(xid))
        elif action == "stamp" and writers:
            sequence += 1
            random.choice(writers).stamps.append((at(now + random.choice((0, 0, 0, 2.0))), sequence))
        elif action == "end" and writers:
            writer = writers.pop(random.randrange(len(writers)))
            if random.random() < 0.8:
                waiting.update(writer.stamps)
        elif action == "look":
            clock = now - random.uniform(0, 0.4)  # the look itself comes a little after its clock
            position.looked(Tick(at(clock), frozenset(writer.xid for writer in writers), frozenset()))
            behind = {place for place in waiting if place < position.position}
            assert not behind
        elif action == "claim":
            limit = random.choice((1, 2, 100))
            due = sorted(place for place in waiting if position.position <= place and place[0] <= at(now))
            taken = due[:limit]
            waiting.difference_update(taken)
            position.sent()
            position.read(taken[-1] if len(taken) == limit else None)


def test_what_came_back_while_a_claim_was_under_way_is_read_again() -> None:
    position = looked((10, set()), (10.25, set()))
    assert position.sent() == (at(9.5), 0)
    position.back_to([(at(9.8), 5)])
    position.read((at(10.1), 77))
    assert position.position == (at(9.5), 0)
    position.sent()
    position.read((at(10.1), 77))
    assert position.position == (at(10.1), 77)


def test_what_cannot_be_read_in_time_is_skipped_and_not_what_came_meanwhile() -> None:
    position = looked((10, set()), (10.25, set()))
    position.rewind()
    for seconds in (20, 30):  # nothing is read in between
        position.looked(Tick(at(seconds), frozenset(), frozenset()))
    assert position.is_behind
    position.skip()
    assert position.position == (at(9.5), 0)
    assert not position.is_behind


def test_what_came_meanwhile_is_skipped_if_it_cannot_be_read_either() -> None:
    position = looked((10, set()), (10.25, set()))
    for seconds in (20, 30):
        position.looked(Tick(at(seconds), frozenset(), frozenset()))
    assert not position.is_behind
    position.skip()
    assert position.position == (at(19.5), 0)


def test_at_the_start_nothing_is_skipped_that_came_after_the_first_look() -> None:
    position = ScanPosition()
    position.looked(Tick(at(10), frozenset(), frozenset()))
    position.skip()
    assert position.position == BEGINNING, "nothing is known yet"
    for seconds in (20, 30):
        position.looked(Tick(at(seconds), frozenset(), frozenset()))
    position.skip()
    assert position.position == (at(9.5), 0)


def test_nothing_is_skipped_before_which_a_row_may_still_appear() -> None:
    position = looked((10, set()), (10.25, set()))
    position.sent()
    position.read((at(10.1), 77))
    position.rewind()
    position.skip()
    assert position.position == (at(9.5), 0)
    position.skip()
    assert position.position == (at(9.5), 0)


def test_a_skip_takes_nothing_back() -> None:
    position = looked((10, set()), (10.25, set()))
    position.sent()
    position.read((at(10.1), 77))
    assert not position.is_behind
    position.skip()
    assert position.position == (at(10.1), 77)


def test_after_a_clock_was_set_back_nothing_is_skipped() -> None:
    position = looked((10, set()), (20, set()), (30, set()))
    position.looked(Tick(at(25), frozenset(), frozenset()))
    assert not position.is_behind
    position.skip()
    assert position.position == BEGINNING
