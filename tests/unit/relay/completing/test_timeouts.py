"""Timeouts: charged to the message while its destination lives, refunded while that is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from outbox_core.errors import DispatchTimeout
from outbox_core.relay.completing.settlement import FailedDispatch
from outbox_core.relay.completing.timeouts import TimedOut, TimeoutReview
from outbox_core.relay.dispatching.destinations import Destination
from outbox_core.runtime import clock
from outbox_core.runtime.mailbox import Mailbox
from tests.kit.brokers import HangingBroker, UnavailableBroker
from tests.kit.deliveries import Delivery, delivery, destination, half_open, leased_again, shared
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


class Verdicts:
    """Stands for the settlement and the pools: keeps what was decided about whom."""

    def __init__(self) -> None:
        self.given: list[tuple[str, list[Delivery]]] = []
        self.doubted: list[Delivery] = []
        self.submitted = 0

    def charge(self, where: Destination, failed: FailedDispatch) -> None:
        self.given.append(("charged", [failed.row]))

    def reschedule(self, failed: FailedDispatch) -> None:
        self.given.append(("charged", [failed.row]))

    def excuse(self, failed: FailedDispatch) -> None:
        self.given.append(("excused", [failed.row]))

    def outage(self, where: Destination, failed: Sequence[FailedDispatch]) -> None:
        self.given.append(("outage", [each.row for each in failed]))

    def doubt(self, where: Destination, failed: FailedDispatch) -> None:
        self.doubted.append(failed.row)

    def is_last(self, failed: FailedDispatch) -> bool:
        return False

    def submit(self) -> None:
        self.submitted += 1


class Review:
    """A review at work, until the block ends."""

    def __init__(self) -> None:
        self.timed_out: Mailbox[TimedOut] = Mailbox()
        self.verdicts = Verdicts()
        parts: Any = self.verdicts
        self.review = TimeoutReview(
            shared(dispatch_timeout=0.3), timed_out=self.timed_out, settlement=parts, pools=parts
        )

    def put(self, where: Destination, row: Delivery, *, began: float | None = None) -> None:
        now = clock.now()
        began = now - 0.3 if began is None else began
        failed = FailedDispatch(row, DispatchTimeout("not acknowledged"), now - began, "DX.TIMEOUT")
        self.timed_out.put(TimedOut(where, failed, began))

    async def __aenter__(self) -> Review:
        self.task = asyncio.create_task(self.review.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def judged(self, rows: int) -> list[tuple[str, list[Delivery]]]:
        """The verdicts, once there is one for this number of rows."""
        await until(lambda: sum(len(each) for _, each in self.verdicts.given) >= rows, 5.0)
        return self.verdicts.given


async def test_a_timeout_is_charged_where_a_probe_is_answered_and_an_outage_where_it_is_not() -> None:
    lives, silent = destination(UnavailableBroker(answers_probes=True)), destination(HangingBroker())
    first, second = delivery(1), delivery(2)
    async with Review() as review:
        review.put(lives, first)
        review.put(silent, second)
        assert await review.judged(2) == [("charged", [first]), ("outage", [second])]
        await until(lambda: review.verdicts.submitted == 2)


async def test_without_a_probe_three_together_in_silence_are_one_outage_and_two_are_none() -> None:
    for count in (2, 3):
        where = destination()
        where.breaker._patience = 0.3
        rows = [delivery(number) for number in range(count)]
        async with Review() as review:
            for row in rows:
                review.put(where, row)
            expected = [("charged", [row]) for row in rows] if count < 3 else [("outage", rows)]
            assert await review.judged(count) == expected


async def test_at_an_unavailable_destination_none_is_asked_for_and_none_is_charged() -> None:
    broker = UnavailableBroker(answers_probes=True)
    where, row = destination(broker), delivery()
    where.unavailable(clock.now(), ())
    async with Review() as review:
        review.put(where, row)
        assert await review.judged(1) == [("outage", [row])]
    assert broker.probes == 0


async def test_a_timeout_that_began_before_the_last_outage_ended_is_excused() -> None:
    where, before, after = destination(UnavailableBroker(answers_probes=True)), delivery(1), delivery(2)
    where.unavailable(clock.now(), ())
    await half_open(where)
    closed_at = clock.now()
    where.acknowledged(closed_at)
    async with Review() as review:
        review.put(where, before, began=closed_at - 0.1)
        review.put(where, after, began=closed_at)
        assert await review.judged(2) == [("excused", [before]), ("charged", [after])]


async def test_while_half_open_a_row_from_before_is_excused_and_a_suspect_pays() -> None:
    where, suspect = destination(UnavailableBroker(answers_probes=True)), delivery(1)
    for _ in range(3):
        where.unavailable(clock.now(), [leased_again(suspect)])
        await half_open(where)
        where.acknowledged(clock.now())
    where.unavailable(clock.now(), ())
    await half_open(where)
    since, before = where.breaker.half_opened_at, delivery(2)
    async with Review() as review:
        review.put(where, before, began=since - 0.1)
        review.put(where, suspect, began=since + 0.001)
        given = await review.judged(2)
    assert given == [("excused", [before]), ("charged", [suspect])]
    assert review.verdicts.doubted == [suspect]


async def test_a_probe_that_hangs_holds_up_no_other_destination() -> None:
    silent, lives = destination(HangingBroker()), destination(UnavailableBroker(answers_probes=True))
    async with Review() as review:
        review.put(silent, delivery(1))
        review.put(lives, second := delivery(2))
        assert (await review.judged(1))[0] == ("charged", [second])


class Asked(HangingBroker):
    """A destination that never answers, and counts how often it was probed."""

    probes = 0

    async def probe(self) -> None:
        self.probes += 1
        await super().probe()


async def _open(where: Destination) -> None:
    where.unavailable(clock.now(), ())


async def _leave(where: Destination) -> None:
    pass


@pytest.mark.parametrize(("change", "verdict"), [(_leave, "charged"), (_open, "excused")])
async def test_a_stop_settles_what_is_under_review_as_it_stands(
    change: Callable[[Destination], Awaitable[None]], verdict: str
) -> None:
    """Also what is being probed, and what was not even taken in."""
    broker = Asked()
    where, probed, waiting = destination(broker), delivery(1), delivery(2)
    review = Review()
    async with review:
        review.put(where, probed)
        await until(lambda: broker.probes == 1)
    review.put(where, waiting)
    await change(where)
    review.review.settle_now()
    assert review.verdicts.given == [(verdict, [probed]), (verdict, [waiting])]
    review.review.settle_now()
    assert len(review.verdicts.given) == 2, "one verdict for each"
