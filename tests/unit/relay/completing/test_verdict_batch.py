"""Batches of verdicts are split and merged, and no verdict is lost or doubled by it."""

from __future__ import annotations

from uuid import uuid4

import pytest

from outbox_core.relay.completing.verdict_batch import Verdict, VerdictBatch
from tests.kit.deliveries import delivery, leased_again


def verdict(sequence: int, error: str = "UNKNOWN.X no") -> Verdict:
    return Verdict(delivery(sequence), error, delay=1.0, refund=False, dead=False, seconds=0.1)


def batch() -> VerdictBatch:
    """Two of each."""
    return VerdictBatch(
        published=[delivery(1), delivery(2)],
        failed=[verdict(3), verdict(4)],
        released=[delivery(5), delivery(6)],
        reasons={"the relay stopped"},
    )


def sequences(verdicts: VerdictBatch) -> list[int]:
    return [row.message.meta.sequence for row in verdicts.rows]


def test_what_is_taken_is_there_and_not_here() -> None:
    whole = batch()
    ids = {row.id for row in whole.rows if row.message.meta.sequence % 2}
    taken = whole.take(ids)
    assert (sequences(whole), sequences(taken)) == ([2, 4, 6], [1, 3, 5])
    assert [len(part) for part in (taken.published, taken.failed, taken.released)] == [1, 1, 1]
    assert (len(whole), len(taken)) == (3, 3)


@pytest.mark.parametrize("unsure", [False, True])
def test_a_part_may_have_been_written_if_the_whole_may(unsure: bool) -> None:
    whole = batch()
    whole.unsure = unsure
    taken = whole.take({whole.published[0].id})
    assert (whole.unsure, taken.unsure) == (unsure, unsure)
    other = VerdictBatch()
    other.add(taken)
    assert other.unsure is unsure


def test_unknown_rows_are_not_taken() -> None:
    whole = batch()
    assert not whole.take({uuid4()})
    assert not whole.take(())
    assert sequences(whole) == [1, 2, 3, 4, 5, 6]


def test_parts_add_up() -> None:
    whole, parts = batch(), VerdictBatch()
    before = list(whole.rows)
    for one in before:
        parts.add(whole.take({one.id}))
    assert not whole
    assert parts.rows == before
    assert parts.reasons == {"the relay stopped"}


def test_parts_share_no_reasons() -> None:
    whole = batch()
    taken, sum_ = whole.take({whole.released[0].id}), VerdictBatch()
    sum_.add(taken)
    taken.reasons.add("of the part")
    whole.reasons.add("of the whole")
    sum_.reasons.add("of the sum")
    assert whole.reasons == {"the relay stopped", "of the whole"}
    assert taken.reasons == {"the relay stopped", "of the part"}
    assert sum_.reasons == {"the relay stopped", "of the sum"}


def test_adding_leaves_the_other_as_it_is() -> None:
    whole, other = batch(), batch()
    whole.add(other)
    other.published.append(delivery(7))
    assert sequences(whole) == [1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5, 6]
    assert sequences(other) == [1, 2, 7, 3, 4, 5, 6]


def test_each_by_itself_is_all_of_them() -> None:
    whole = batch()
    alone = list(whole.one_by_one())
    assert [sequences(one) for one in alone] == [[1], [2], [3], [4], [5], [6]]
    assert [one.reasons for one in alone if one.released] == [{"the relay stopped"}] * 2


def test_errors_are_spelt_out_once() -> None:
    verdicts = VerdictBatch(
        failed=[verdict(1, "kaputt → 中文 é"), verdict(2, "plain")], released=[delivery(3)]
    )
    before = verdicts.failed[0]
    assert verdicts.spell_out()
    assert [one.error for one in verdicts.failed] == ["kaputt \\u2192 \\u4e2d\\u6587 \\xe9", "plain"]
    assert verdicts.failed[0].row is before.row
    assert (verdicts.failed[0].delay, verdicts.failed[0].seconds) == (before.delay, before.seconds)
    assert not verdicts.spell_out()
    assert sequences(verdicts) == [1, 2, 3]


def test_there_is_nothing_to_spell_out_where_nothing_failed() -> None:
    assert not VerdictBatch(published=[delivery(1)], released=[delivery(2)]).spell_out()


@pytest.mark.parametrize("most", range(8))
def test_what_is_beyond_so_many_is_there_and_not_here_in_order(most: int) -> None:
    whole = batch()
    rest = whole.beyond(most)
    assert (sequences(whole), sequences(rest)) == (list(range(1, 7))[:most], list(range(1, 7))[most:])
    whole.add(rest)
    assert sequences(whole) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("most", range(1, 5))
def test_a_row_that_is_there_with_two_leases_is_parted_like_two(most: int) -> None:
    first, second = delivery(1), delivery(2)
    again = [leased_again(one) for one in (first, second)]
    whole = VerdictBatch(published=[first, second, *again])
    rest = whole.beyond(most)
    assert (len(whole), len(rest)) == (most, 4 - most)
    assert [*whole.published, *rest.published] == [first, second, *again]
