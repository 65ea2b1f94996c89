"""The search of a message for a destination that may be back."""

from __future__ import annotations

from outbox_core.errors import StorageTimeout
from outbox_core.relay.settings import RelaySettings
from outbox_core.relay.sweep import Sweeps


def test_a_search_looks_for_one_row_and_no_further_than_slices_are_known_to_come() -> None:
    sweeps = Sweeps(RelaySettings())
    usual = sweeps.in_turn(0.0)
    assert usual is not None
    usual.reach.failed(StorageTimeout("not answered in time"))
    sweeps.search()
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
