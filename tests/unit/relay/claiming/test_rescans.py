"""Rescans, and the search for a row with which to try a destination."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outbox_core.errors import StorageTimeout
from outbox_core.relay.claiming.scan import Rescans
from outbox_core.relay.settings import RelaySettings
from outbox_core.store import BEGINNING, Position
from tests.kit.tuning import stop_clock

POSITION: Position = (datetime(2030, 1, 1, tzinfo=UTC), 100)
ON_THE_WAY: Position = (datetime(2029, 1, 1, tzinfo=UTC), 50)


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clock(monkeypatch)


def test_a_search_asks_for_one_row_and_reads_no_further_than_slices_are_known_to_come() -> None:
    rescans = Rescans(RelaySettings())
    usual = rescans.in_turn(0.0)
    assert usual is not None
    usual.limits.failed(StorageTimeout("not answered in time"))
    rescans.search()
    assert rescans.in_turn(0.0) is None, "claims that read on have their turn after every slice"
    search = rescans.in_turn(0.0)
    assert search is not None
    assert search is not usual
    assert search.limits.rows.value == 1
    assert search.limits.span == usual.limits.span
    assert search.limits.span is not None


def test_a_search_reads_all_there_is_where_that_was_never_too_much() -> None:
    rescans = Rescans(RelaySettings())
    rescans.search()
    search = rescans.in_turn(0.0)
    assert search is not None
    assert search.limits.span is None


def test_slices_of_both_take_turns_with_each_other_and_with_claims_that_read_on() -> None:
    rescans = Rescans(RelaySettings())
    rescans.search()
    turns = []
    for _ in range(8):
        rescan = rescans.in_turn(0.0)
        turns.append(rescan)
        if rescan is not None:
            assert not rescan.read(ON_THE_WAY, POSITION, 0.0, of_use=True)
    search, none, usual = turns[:3]
    assert none is None
    assert search is not usual
    assert turns == [search, None, usual, None] * 2


def test_a_rescan_under_way_comes_to_its_end_however_often_it_is_wanted_anew() -> None:
    rescans = Rescans(RelaySettings())
    rescan = rescans.in_turn(0.0)
    assert rescan is not None
    rescan.read(ON_THE_WAY, POSITION, 0.0, of_use=False)
    rescans.begin_anew()
    assert ON_THE_WAY < rescan.position < POSITION
    assert rescan.read(POSITION, POSITION, 0.0, of_use=False)
    assert rescan.position == BEGINNING
    assert rescans.in_turn(0.0) is rescan, "another follows at once"
    assert rescan.read(None, POSITION, 0.0, of_use=False)
    assert [rescans.in_turn(0.0), rescans.in_turn(0.0)] == [None, None], "and no more than one"
