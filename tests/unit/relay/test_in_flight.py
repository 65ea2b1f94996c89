"""What a relay has in flight: which rows, in which stage, of which claims, and how much room they take."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_core.errors import ContentUnreadable
from outbox_core.relay.in_flight import Batch, Stage
from outbox_core.relay.ordering.admission import Admission
from outbox_core.runtime.wakeups import Wakeups
from outbox_core.store import Predecessor
from tests.kit.deliveries import Delivery, batch, claim, delivery, in_flight, key_id, key_order, leased


def batch_of(*sequences: int, token: UUID | None = None) -> Batch:
    """Rows of 5 bytes each, of one claim."""
    token = token or uuid4()
    rows = [delivery(number, "k", token=token, payload=b"12345") for number in sequences]
    return batch(claim(token=token, term=1), leased(rows))


def test_a_claim_is_in_flight_until_its_last_row_has_left() -> None:
    flight, first, second = in_flight(100), batch_of(1, 2), batch_of(3)
    flight.add(first)
    flight.add(second)
    tokens = [first.claim.token, second.claim.token]
    assert (flight.rows, flight.bytes, flight.tokens()) == (3, 15, tokens)
    one, two = flight.opened(first)
    flight.remove([one])
    assert flight.tokens() == tokens
    flight.remove([two, *flight.opened(second)])
    assert (flight.rows, flight.bytes, flight.tokens()) == (0, 0, [])


def test_a_claim_that_brought_nothing_is_not_in_flight() -> None:
    flight = in_flight()
    flight.add(batch_of())
    assert (flight.rows, flight.tokens(), flight.by_stage()) == (0, [], {})


def test_rows_are_counted_by_stage_from_their_claim_until_they_leave() -> None:
    flight, first, second = in_flight(), batch_of(1, 2, 3), batch_of(4)
    flight.add(first)
    flight.add(second)
    assert flight.by_stage() == {Stage.CLAIMED: 4}, "also those whose deliveries are not made yet"
    one, two, three = flight.opened(first)
    one.stage, two.stage = Stage.DISPATCHING, Stage.WAITING
    assert flight.by_stage() == {Stage.DISPATCHING: 1, Stage.WAITING: 1, Stage.CLAIMED: 2}
    flight.remove([one, three])
    assert flight.by_stage() == {Stage.WAITING: 1, Stage.CLAIMED: 1}


def test_deliveries_are_made_once_and_expire_with_their_claim() -> None:
    flight, only = in_flight(), batch_of(1)
    only.expires = 77.0
    flight.add(only)
    (made,) = flight.opened(only)
    assert made.expires == 77.0
    assert flight.opened(only) == [made]
    assert flight.rows == 1


def test_why_a_row_is_unreadable_is_known_until_it_leaves() -> None:
    flight, unreadable, other = in_flight(), batch_of(1), batch_of(2)
    error = ContentUnreadable("no")
    unreadable.unreadable = dict.fromkeys(unreadable.deliveries(), error)
    for each in (unreadable, other):
        flight.add(each)
    (row,), (readable,) = flight.opened(unreadable), flight.opened(other)
    assert flight.unreadable == {row: error}
    flight.remove([readable])
    assert flight.unreadable == {row: error}
    flight.remove([row])
    assert flight.unreadable == {}


def test_rows_whose_write_is_deferred_take_no_room() -> None:
    flight, several = in_flight(11), batch_of(1, 2, 3)
    flight.add(several)
    rows = flight.opened(several)
    assert not flight.has_room(3), "15 bytes are too many"
    assert flight.has_room(3, shares=2)
    flight.defer(rows[:1])
    assert (flight.busy, flight.rows) == (2, 3)
    assert flight.has_room(2)
    assert not flight.has_room(1)
    flight.defer([])
    assert flight.busy == 3


def test_an_abandoned_row_comes_before_others_while_rows_of_its_claim_are_in_flight() -> None:
    flight, several = in_flight(), batch_of(1, 2)
    flight.add(several)
    abandoned, other = flight.opened(several)
    flight.abandon([abandoned])
    flight.remove([abandoned])
    assert (flight.tokens(), flight.unordered_ids()) == ([several.claim.token], [abandoned.id])
    flight.remove([other])
    assert flight.unordered_ids() == []


@pytest.mark.asyncio
async def test_a_change_ends_one_wait() -> None:
    flight, only = in_flight(), batch_of(1)
    flight.add(only)
    assert not await flight.changed(0.0)
    waiting = asyncio.create_task(flight.changed(5.0))
    await asyncio.sleep(0)
    flight.remove(flight.opened(only))
    assert await waiting
    assert not await flight.changed(0.0)


class Sent:
    """Keeps what admission releases and submits."""

    def __init__(self) -> None:
        self.released: list[Delivery] = []
        self.submitted = 0

    def release_unordered(self, rows: list[Delivery], reason: str) -> None:
        self.released.extend(rows)

    def submit(self) -> None:
        self.submitted += 1


@pytest.mark.asyncio
async def test_rows_that_admission_releases_are_unordered_until_their_release_is_on_record() -> None:
    """Until then they are leased, and may come before what is claimed meanwhile."""
    flight, sent = in_flight(1000), Sent()
    parts: Any = sent
    admission = Admission(
        ordered=True, in_flight=flight, keys=key_order(), settlement=parts, pools=parts, wakeups=Wakeups(1.0)
    )
    token = uuid4()
    rows = [delivery(number, "k", token=token) for number in (1, 3)]
    admission.put(batch(claim(token=token, term=1), leased(rows, {key_id("k"): Predecessor(2, 5.0)})))
    assert (flight.rows, sent.submitted) == (2, 0)
    admission.flush()
    assert [row.id for row in sent.released] == [rows[1].id]
    assert sent.submitted == 1
    assert (flight.tokens(), flight.unordered_ids()) == ([token], [rows[1].id])
    flight.remove(sent.released)
    assert (flight.tokens(), flight.unordered_ids()) == ([token], [])
