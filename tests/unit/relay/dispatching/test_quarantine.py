"""Poison suspects: who was dispatching at three openings that were no outages goes alone and is charged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from outbox_core.relay.dispatching.destinations import Destination
from outbox_core.relay.dispatching.quarantine import Quarantine
from tests.kit.brokers import UnavailableBroker
from tests.kit.deliveries import (
    breaker,
    delivery,
    destination,
    end,
    half_open,
    leased_again,
    start,
)

POISON, OTHER = delivery(), delivery()


def probing() -> Destination:
    """A destination that answers its probes."""
    return destination(UnavailableBroker(answers_probes=True))


@pytest.mark.asyncio
async def test_a_row_at_three_openings_after_which_the_broker_answered_is_suspected() -> None:
    where = probing()
    for opening in range(3):
        assert not where.quarantine.is_suspect(POISON.id), opening
        where.unavailable(opening, [leased_again(POISON)])
        await half_open(where)
    assert where.quarantine.is_suspect(POISON.id)
    assert not where.quarantine.is_suspect(OTHER.id)
    assert where.quarantine.has_suspicions
    where.quarantine.forget(POISON.id)
    assert not where.quarantine.is_suspect(POISON.id)
    assert not where.quarantine.has_suspicions


@pytest.mark.asyncio
async def test_a_broker_that_is_full_makes_no_suspects_before_another_message_has_arrived() -> None:
    where = probing()
    for _ in range(6):
        where.unavailable(0.0, [leased_again(POISON)], broker_full=True)
        await half_open(where)
    assert where.quarantine.suspicions_of(POISON.id) == 0
    where.acknowledged(0.0)
    assert where.quarantine.suspicions_of(POISON.id) == 1
    where.unavailable(0.0, [leased_again(POISON)])
    await half_open(where)
    assert where.quarantine.suspicions_of(POISON.id) == 2


@pytest.mark.asyncio
async def test_an_outage_that_lasts_makes_no_suspects() -> None:
    where = destination()
    where.unavailable(0.0, [leased_again(OTHER)])
    for now in range(50):
        where.breaker.probe_failed(now)
        await half_open(where)
        where.unavailable(now, [leased_again(OTHER)])
    assert not where.quarantine.is_suspect(OTHER.id)


@pytest.mark.asyncio
async def test_a_witness_of_the_opening_is_suspected_although_trials_of_others_failed_after_it() -> None:
    """Without a probe nothing answers before a delivery: until then it is one outage, however often it was tried."""
    where = destination()
    for _ in range(3):
        assert not where.quarantine.is_suspect(POISON.id)
        where.unavailable(0.0, [leased_again(POISON)])
        for _ in range(4):
            await half_open(where)
            where.unavailable(0.0, [delivery()])
        await half_open(where)
        where.acknowledged(0.0)
    assert where.quarantine.is_suspect(POISON.id)


@pytest.mark.asyncio
async def test_a_row_that_hangs_through_an_opening_and_a_failed_trial_is_a_witness_once_for_each_outage() -> (
    None
):
    """Nothing has answered yet when another row tries: that it fails, too, says no more than the first time."""
    where, seen = destination(its_breaker=breaker(1.0)), list[bool]()
    for _ in range(3):
        hanging, first, second = leased_again(POISON), delivery(), delivery()
        assert start(where, hanging)
        where.unavailable(0.0, [first])
        await half_open(where)
        where.unavailable(0.0, [second])
        await half_open(where)
        where.acknowledged(0.0)
        end(where, hanging)
        seen.append(where.quarantine.is_suspect(POISON.id))
    assert seen == [False, False, True]


@pytest.mark.asyncio
async def test_one_lease_is_a_witness_once_however_many_openings_it_sees() -> None:
    where = probing()
    assert start(where, POISON)
    for _ in range(5):
        where.unavailable(0.0, ())
        await half_open(where)
        where.acknowledged(0.0)
    assert where.quarantine.suspicions_of(POISON.id) == 1


@pytest.mark.parametrize(
    ("after", "suspicions"), [(half_open, 1), (lambda where: _refuse(where), 0)], ids=["answered", "refused"]
)
@pytest.mark.asyncio
async def test_only_a_sign_of_life_confirms_what_was_witnessed(
    after: Callable[[Destination], Awaitable[None]], suspicions: int
) -> None:
    where = probing()
    where.unavailable(0.0, [POISON])
    await after(where)
    assert where.quarantine.suspicions_of(POISON.id) == suspicions


async def _refuse(where: Destination) -> None:
    assert not where.refused(0.0), "an open one is not closed by what an earlier dispatch got"


def test_the_table_of_a_failed_trial_yields_to_others_for_a_moment_where_there_are_others() -> None:
    quarantine = Quarantine()
    assert quarantine.half_opened(10.0, is_shared=True) == 0.0, "no trial has failed"
    quarantine.trial_failed("public.a")
    assert quarantine.half_opened(10.0, is_shared=False) == 0.0, "there is no other"
    assert not quarantine.yields("public.a", 10.0)
    seconds = quarantine.half_opened(10.0, is_shared=True)
    assert seconds > 0.0
    assert quarantine.yields("public.a", 10.0)
    assert not quarantine.yields("public.b", 10.0)
    assert not quarantine.yields("public.a", 10.0 + seconds)
    quarantine.closed()
    assert quarantine.half_opened(20.0, is_shared=True) == 0.0


def test_a_suspect_that_is_withdrawn_need_not_be_waited_for() -> None:
    quarantine = Quarantine()
    quarantine.alone = POISON
    assert not quarantine.let_go([OTHER])
    assert quarantine.alone is POISON
    assert quarantine.let_go([OTHER, POISON])
    assert quarantine.alone is None
