"""Crash suspects: dispatched without the others, and not before those they come after."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from outbox_core.relay.claiming.crash_suspects import single_out, suspect_in
from outbox_core.relay.in_flight import Batch
from outbox_core.store import KeyId, Predecessor
from tests.kit.deliveries import Delivery, batch, claim, delivery, key_id, leased

HIDDEN: dict[KeyId, Predecessor] = {key_id("other"): Predecessor(1, 2.0)}


def batch_of(*rows: Delivery, full: bool = True) -> Batch:
    return batch(claim(), leased(rows, HIDDEN), full=full)


def ids(rows: Sequence[Delivery]) -> list[object]:
    return [row.id for row in rows]


def test_one_lost_lease_is_no_suspicion() -> None:
    several = batch_of(delivery(1), delivery(2, attempts=2, recovered=True), delivery(3, attempts=9))
    assert suspect_in(several, 25) is None
    assert (several.count, several.predecessors, several.full) == (3, HIDDEN, True)


@pytest.mark.parametrize(("attempts", "allowed"), [(3, 25), (1, 1)])
def test_a_suspect_is_kept_and_the_others_are_released(attempts: int, allowed: int) -> None:
    rows = [
        delivery(1),
        delivery(2, attempts=attempts, recovered=True, payload=b"123"),
        delivery(3, payload=b"1"),
    ]
    several = batch_of(*rows)
    suspect = suspect_in(several, allowed)
    assert suspect is not None
    assert suspect.id == rows[1].id
    others = single_out(several, suspect)
    assert (ids(several.deliveries()), several.predecessors) == ([rows[1].id], HIDDEN)
    assert ids(others) == [rows[0].id, rows[2].id]
    assert (several.count, several.bytes, several.last) == (1, 3, suspect.position)
    assert not several.full, "there is no more where it came from"


def test_what_is_released_and_comes_before_it_in_its_key_is_its_predecessor() -> None:
    replayed, before, behind, another = (
        delivery(1, "k", replays=1),
        delivery(4, "k"),
        delivery(6, "k"),
        delivery(2, "l"),
    )
    several = batch_of(replayed, another, before, delivery(5, "k", attempts=3, recovered=True), behind)
    suspect = suspect_in(several, 25)
    assert suspect is not None
    single_out(several, suspect)
    assert several.predecessors == HIDDEN | {key_id("k"): Predecessor(4, 0.0)}


def test_a_suspect_that_is_alone_already_stays_as_it_is() -> None:
    alone = batch_of(delivery(5, attempts=3, recovered=True))
    suspect = suspect_in(alone, 25)
    assert suspect is not None
    assert single_out(alone, suspect) == []
    assert (alone.deliveries(), alone.predecessors, alone.full) == ([suspect], HIDDEN, True)
