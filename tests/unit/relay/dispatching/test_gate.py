"""The gate of a destination: which row may start now, and who is woken when the answer may have changed."""

from __future__ import annotations

import pytest

from outbox_core.relay.dispatching.destinations import Destination
from outbox_core.relay.in_flight import Delivery
from tests.kit.brokers import UnavailableBroker
from tests.kit.deliveries import Woken, delivery, destination, half_open, leased_again
from tests.kit.tuning import stop_clock


async def with_suspect() -> tuple[Destination, Delivery]:
    """A closed destination, and a row that was there at three openings that were no outages."""
    where, suspect = destination(UnavailableBroker(answers_probes=True)), delivery()
    for _ in range(3):
        where.unavailable(0.0, [leased_again(suspect)])
        await half_open(where)
        where.acknowledged(0.0)
    return where, suspect


def test_every_row_enters_while_messages_flow() -> None:
    gate = destination().gate
    rows = [delivery(number) for number in range(5)]
    assert all(gate.enter(row, 0.0) for row in rows)
    assert gate.dispatching == 5
    for row in rows:
        gate.leave(row)
    assert gate.dispatching == 0


@pytest.mark.asyncio
async def test_no_row_enters_while_open_and_one_at_a_time_while_half_open() -> None:
    where = destination()
    first, second = delivery(1), delivery(2)
    where.unavailable(0.0, ())
    assert not where.gate.enter(first, 0.0)
    await half_open(where)
    assert where.gate.enter(first, 0.0)
    assert where.is_blocked
    assert not where.gate.enter(second, 0.0)
    where.gate.leave(first)
    assert not where.is_blocked
    assert where.gate.enter(second, 0.0)


@pytest.mark.asyncio
async def test_a_row_from_before_the_outage_keeps_the_trial_waiting() -> None:
    where, hanging, trial, pool = destination(), delivery(1), delivery(2), Woken()
    assert where.gate.enter(hanging, 0.0)
    where.unavailable(0.0, ())
    await half_open(where)
    assert not where.gate.enter(trial, 0.0)
    where.gate.wait(pool)
    assert where.gate.holds_back(pool, trial)
    where.gate.leave(hanging)
    assert pool.times == 1
    assert not where.gate.holds_back(pool, trial), "it waits no more"
    assert where.gate.enter(trial, 0.0)


@pytest.mark.asyncio
async def test_a_suspect_enters_alone_and_no_other_row_while_it_is_inside() -> None:
    where, suspect = await with_suspect()
    before, after, pool = delivery(2), delivery(3), Woken()
    assert where.gate.enter(before, 1.0)
    assert not where.gate.enter(suspect, 1.0)
    assert not where.gate.enter(after, 1.0), "it would keep the suspect waiting for ever"
    where.gate.wait(pool)
    where.gate.leave(before)
    assert pool.times == 1
    assert not where.gate.enter(after, 1.0), "the suspect is next"
    assert where.gate.enter(suspect, 1.0)
    assert not where.gate.enter(after, 1.0)
    where.gate.wait(pool)
    where.gate.leave(suspect)
    assert pool.times == 2
    assert where.gate.enter(after, 1.0)


@pytest.mark.asyncio
async def test_others_are_woken_when_the_suspect_they_wait_for_is_withdrawn() -> None:
    where, suspect = await with_suspect()
    before, after, pool = delivery(2), delivery(3), Woken()
    assert where.gate.enter(before, 1.0)
    assert not where.gate.enter(suspect, 1.0)
    assert not where.gate.enter(after, 1.0), "it has to be alone first"
    where.gate.wait(pool)
    where.gate.withdraw([after])
    assert pool.times == 0, "that one was not waited for"
    where.gate.withdraw([suspect])
    assert pool.times == 1
    assert where.gate.enter(after, 1.0)


def test_a_pool_is_woken_once_for_each_wait() -> None:
    gate, pool, other = destination().gate, Woken(), Woken()
    for each in (pool, pool, other):
        gate.wait(each)
    gate.reopen()
    gate.reopen()
    assert (pool.times, other.times) == (1, 1)


@pytest.mark.asyncio
async def test_a_table_whose_trial_failed_leaves_the_next_one_to_another() -> None:
    where = destination()
    failed, other = delivery(1), delivery(2, table="public.other")
    where.quarantine.trial_failed(failed.message.meta.table)
    where.unavailable(0.0, ())
    where.breaker.half_open(10.0, answered=False)
    seconds = where.quarantine.half_opened(10.0, is_shared=True)
    assert not where.gate.enter(failed, 10.0)
    assert where.gate.enter(other, 10.0)
    where.gate.leave(other)
    assert where.gate.enter(failed, 10.0 + seconds)


@pytest.mark.asyncio
async def test_while_one_table_yields_its_trial_another_is_not_held_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_clock(monkeypatch, 10.0)
    where, pool = destination(), Woken()
    yielding, other = delivery(1, table="public.a"), delivery(2, table="public.b")
    where.unavailable(0.0, ())
    where.breaker.half_open(10.0, answered=True)
    where.quarantine.trial_failed("public.a")
    where.quarantine.half_opened(10.0, is_shared=True)
    where.gate.wait(pool)
    assert where.gate.holds_back(pool, yielding)
    assert not where.gate.holds_back(pool, other)
    assert where.gate.enter(other, 10.0)
