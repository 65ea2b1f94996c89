"""A message that may take its relay down is dispatched without the others, and not before those it comes after."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from outbox_core.meta import DispatchedMessage, Meta
from outbox_core.relay.suspects import has_suspects, singled_out
from outbox_core.store import KeyId, Leased, Predecessor, Row

NIL, START = UUID(int=0), datetime(2030, 1, 1, tzinfo=UTC)
HIDDEN: dict[KeyId, Predecessor] = {(NIL, "other"): Predecessor(1, 2.0)}


def row(
    sequence: int, key: str | None = None, *, attempts: int = 1, recovered: bool = False, replays: int = 0
) -> Row:
    meta = Meta("public.t", NIL, "a.b.v1", uuid4(), sequence, attempts, replays, key, {}, START)
    key_id = None if key is None else (NIL, key)
    return Row(uuid4(), uuid4(), DispatchedMessage(meta, b"", "application/json"), 0.0, key_id, recovered)


def test_one_lost_lease_is_no_suspicion() -> None:
    leased = Leased.of([row(1), row(2, attempts=2, recovered=True), row(3, attempts=9)], HIDDEN)
    assert not has_suspects(leased, 25)
    assert singled_out(leased, 25) == (leased, [])


@pytest.mark.parametrize(("attempts", "allowed"), [(3, 25), (1, 1)])
def test_a_suspect_is_kept_and_the_others_go_back(attempts: int, allowed: int) -> None:
    suspect = row(2, attempts=attempts, recovered=True)
    others = [row(1), row(3)]
    leased = Leased.of([others[0], suspect, others[1]], HIDDEN)
    assert has_suspects(leased, allowed)
    alone, back = singled_out(leased, allowed)
    assert (alone.rows(), alone.hidden, back) == ([suspect], HIDDEN, others)


def test_what_goes_back_and_comes_before_it_in_its_key_hides() -> None:
    suspect = row(5, "k", attempts=3, recovered=True)
    replayed, before, behind, another = row(1, "k", replays=1), row(4, "k"), row(6, "k"), row(2, "l")
    alone, _ = singled_out(Leased.of([replayed, another, before, suspect, behind], HIDDEN), 25)
    assert alone.hidden == HIDDEN | {(NIL, "k"): Predecessor(4, 0.0)}


def test_what_is_alone_already_stays_as_it_is() -> None:
    leased = Leased.of([row(5, attempts=3, recovered=True)], HIDDEN)
    assert singled_out(leased, 25) == (leased, [])
