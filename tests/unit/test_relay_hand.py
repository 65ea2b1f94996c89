"""What a relay has in hand, and which claims' rows it knows the order of."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from outbox_core.relay.admission import Admission
from outbox_core.relay.wakeups import Wakeups
from outbox_core.store import Predecessor
from tests.kit.deliveries import Delivery, batch, claim, delivery, in_flight, key_id, key_order, leased


def rows_of(token: UUID, *sequences: int) -> list[Delivery]:
    return [delivery(number, "k", token=token, payload=b"12345") for number in sequences]


def test_a_claim_is_in_hand_until_its_last_row_has_left() -> None:
    hand, first, second = in_flight(100), rows_of(uuid4(), 1, 2), rows_of(uuid4(), 3)
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
    hand, released = in_flight(1000), list[Delivery]()
    admission = Admission(
        key_order(),
        hand,
        ordered=True,
        deliver=lambda _: None,
        release=lambda rows, _: released.extend(rows),
        wakeups=Wakeups(1.0),
    )
    terms = claim(term=1, max_bytes=1000)
    rows = rows_of(terms.token, 1, 3)
    answer = leased(rows, {key_id("k"): Predecessor(2, 5.0)})
    admission.admit_soon(batch(terms, answer))
    admission.admit_all()
    assert released == rows[1:]
    assert (hand.tokens, hand.apart) == ([terms.token], [rows[1].id])
    hand.drop(released)
    assert (hand.tokens, hand.apart) == ([terms.token], [])
