"""A message that may take its relay down is dispatched without the others, and not before those it comes after."""

from __future__ import annotations

import pytest

from outbox_core.relay.suspects import has_suspects, singled_out
from outbox_core.store import KeyId, Predecessor
from tests.kit.deliveries import delivery, key_id
from tests.kit.deliveries import leased as answer

HIDDEN: dict[KeyId, Predecessor] = {key_id("other"): Predecessor(1, 2.0)}


def test_one_lost_lease_is_no_suspicion() -> None:
    leased = answer([delivery(1), delivery(2, attempts=2, recovered=True), delivery(3, attempts=9)], HIDDEN)
    assert not has_suspects(leased, 25)
    assert singled_out(leased, 25) == (leased, [])


@pytest.mark.parametrize(("attempts", "allowed"), [(3, 25), (1, 1)])
def test_a_suspect_is_kept_and_the_others_go_back(attempts: int, allowed: int) -> None:
    suspect = delivery(2, attempts=attempts, recovered=True)
    others = [delivery(1), delivery(3)]
    leased = answer([others[0], suspect, others[1]], HIDDEN)
    assert has_suspects(leased, allowed)
    alone, back = singled_out(leased, allowed)
    assert (alone.rows(), alone.hidden, back) == ([suspect], HIDDEN, others)


def test_what_goes_back_and_comes_before_it_in_its_key_hides() -> None:
    suspect = delivery(5, "k", attempts=3, recovered=True)
    replayed, before, behind, another = (
        delivery(1, "k", replays=1),
        delivery(4, "k"),
        delivery(6, "k"),
        delivery(2, "l"),
    )
    alone, _ = singled_out(answer([replayed, another, before, suspect, behind], HIDDEN), 25)
    assert alone.hidden == HIDDEN | {key_id("k"): Predecessor(4, 0.0)}


def test_what_is_alone_already_stays_as_it_is() -> None:
    leased = answer([delivery(5, attempts=3, recovered=True)], HIDDEN)
    assert singled_out(leased, 25) == (leased, [])
