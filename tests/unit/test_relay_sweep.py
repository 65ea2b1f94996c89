"""Sweeps, and the search of a message for a destination that may be back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outbox_core.errors import StorageTimeout
from outbox_core.relay import clock
from outbox_core.relay.settings import RelaySettings
from outbox_core.relay.sweep import Sweeps
from outbox_core.store import BEGINNING, Position

POSITION: Position = (datetime(2030, 1, 1, tzinfo=UTC), 100)
ON_THE_WAY: Position = (datetime(2029, 1, 1, tzinfo=UTC), 50)


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: 0.0)


def test_a_search_looks_for_one_row_and_no_further_than_slices_are_known_to_come() -> None:
    sweeps = Sweeps(RelaySettings())
    usual = sweeps.in_turn(0.0)
    assert usual is not None
    usual.reach.failed(StorageTimeout("not answered in time"))
    sweeps.search()
    assert sweeps.in_turn(0.0) is None, "claims that read on have their turn after every slice"
    search = sweeps.in_turn(0.0)
    assert search is not None
    assert search is not usual
    assert search.reach.limit == 1
    assert search.reach.span == usual.reach.span
    assert search.reach.span is not None


def test_a_search_looks_at_all_there_is_where_that_was_never_too_much() -> None:
    sweeps = Sweeps(RelaySettings())
    sweeps.search()
    search = sweeps.in_turn(0.0)
    assert search is not None
    assert search.reach.span is None


def test_slices_of_both_take_turns_with_each_other_and_with_claims_that_read_on() -> None:
    sweeps = Sweeps(RelaySettings())
    sweeps.search()
    turns = []
    for _ in range(8):
        sweep = sweeps.in_turn(0.0)
        turns.append(sweep)
        if sweep is not None:
            assert not sweep.read(ON_THE_WAY, POSITION, 0.0, of_use=True)
    search, nobody, usual = turns[:3]
    assert nobody is None
    assert search is not usual
    assert turns == [search, None, usual, None] * 2


def test_a_sweep_under_way_comes_to_its_end_however_often_it_is_wanted_anew() -> None:
    sweeps = Sweeps(RelaySettings())
    sweep = sweeps.in_turn(0.0)
    assert sweep is not None
    sweep.read(ON_THE_WAY, POSITION, 0.0, of_use=False)
    sweeps.begin_anew()
    assert ON_THE_WAY < sweep.position < POSITION
    assert sweep.read(POSITION, POSITION, 0.0, of_use=False)
    assert sweep.position == BEGINNING
    assert sweeps.in_turn(0.0) is sweep, "another follows at once"
    assert sweep.read(None, POSITION, 0.0, of_use=False)
    assert [sweeps.in_turn(0.0), sweeps.in_turn(0.0)] == [None, None], "and no more than one"
