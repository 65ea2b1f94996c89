"""What a relay has in hand, and which claims' rows it knows the order of."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from outbox_core.meta import DispatchedMessage, Meta
from outbox_core.relay.admission import Admission, Batch
from outbox_core.relay.hand import Hand
from outbox_core.relay.keys import Keys
from outbox_core.relay.wakeups import Wakeups
from outbox_core.store import Claim, Leased, Predecessor, Row

NIL = UUID(int=0)
START = datetime(2030, 1, 1, tzinfo=UTC)


def rows_of(token: UUID, *sequences: int) -> list[Row]:
    metas = [Meta("public.t", NIL, "a.b.v1", uuid4(), number, 1, 0, "k", {}, START) for number in sequences]
    return [
        Row(uuid4(), token, DispatchedMessage(meta, b"12345", "application/json"), 0.0, (NIL, "k"))
        for meta in metas
    ]


def test_a_claim_is_in_hand_until_its_last_row_has_left() -> None:
    hand, first, second = Hand(100), rows_of(uuid4(), 1, 2), rows_of(uuid4(), 3)
    hand.take(first[0].token, 2, 10)
    hand.take(second[0].token, 1, 5)
    assert (hand.rows, hand.bytes, hand.tokens) == (3, 15, [first[0].token, second[0].token])
    hand.drop(first[:1])
    assert hand.tokens == [first[0].token, second[0].token]
    hand.drop([*first[1:], *second])
    assert (hand.rows, hand.bytes, hand.tokens) == (0, 0, [])


@pytest.mark.asyncio
async def test_a_claim_of_which_rows_go_back_unordered_does_not_hide_them_from_the_next() -> None:
    """Until their release is on record they are leased, and may come before what is claimed meanwhile."""
    hand, released = Hand(1000), list[Row]()
    admission = Admission(
        Keys(),
        hand,
        ordered=True,
        deliver=lambda _: None,
        release=lambda rows, _: released.extend(rows),
        wakeups=Wakeups(1.0),
    )
    claim = Claim(token=uuid4(), term=1, limit=10, max_bytes=1000, lock_ttl=60.0)
    rows = rows_of(claim.token, 1, 3)
    key_id = rows[0].key_id
    assert key_id is not None
    leased = Leased.of(rows, {key_id: Predecessor(2, 5.0)})
    admission.admit_soon(Batch(claim, leased, {}, 1e9, full=False))
    admission.admit_all()
    assert released == rows[1:]
    assert (hand.tokens, hand.apart) == ([claim.token], [rows[1].id])
    hand.drop(released)
    assert (hand.tokens, hand.apart) == ([claim.token], [])
