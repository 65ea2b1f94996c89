"""The network between the relay and PostgreSQL holds up or loses what is said: no wait is without end, and what the
database did unheard is found out, neither repeated nor charged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.relay.broker import Broker
from tests.integration.relay.trial import BACK_WITHIN, Gate, Trial
from tests.kit.settings import QUICK_TAKEOVER
from tests.kit.waiting import until
from tests.services.proxy import FaultProxy

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]

PATIENT: dict[str, Any] = {"lock_ttl": 10.0, "database_timeout": 2.0}


@asynccontextmanager
async def _gated(
    trial: Trial, *, closed: bool = True, **options: Any
) -> AsyncIterator[tuple[Gate, FaultProxy]]:
    """A relay that reaches its database through a proxy, and whose updates wait at a gate while that is closed."""
    async with (
        trial.gate(closed=closed) as gate,
        FaultProxy.to_postgres(trial.dsn) as proxy,
        trial.running(proxy.dsn(trial.dsn), **options),
    ):
        yield gate, proxy


async def _done_unheard(trial: Trial, gate: Gate, proxy: FaultProxy, condition: str, count: int) -> None:
    """Lose the answer to the update that comes to the gate, after which so many rows satisfy a condition."""
    await gate.until_waiting()
    proxy.hold_responses()
    await gate.open()
    await trial.until_rows(condition, count, 5.0)


@pytest.mark.parametrize(
    ("fault", "reset"),
    [(FaultProxy.hold, False), (FaultProxy.hold_requests, True), (FaultProxy.hold_responses, True)],
    ids=["black hole that heals", "requests are lost", "answers are lost"],
)
async def test_the_network_holds(trial: Trial, fault: Callable[[FaultProxy], None], reset: bool) -> None:
    async with FaultProxy.to_postgres(trial.dsn) as proxy, trial.running(proxy.dsn(trial.dsn)):
        await trial.enqueue(2)
        await trial.until_published(2)
        fault(proxy)
        await trial.enqueue(3)
        await proxy.wait_for(lambda p: p.requests.held + p.responses.held > 0)
        await until(lambda: bool(trial.journal.events("Reconnecting")), 5.0, "noticing it")
        await until(lambda: bool(trial.journal.events("LeaderLost")), 5.0, "stepping down")
        if reset:
            assert proxy.reset()
        proxy.pass_through()
        # A claim that went through unheard of may have to be waited for.
        assert await trial.until_published(5) < BACK_WITHIN + QUICK_TAKEOVER["lock_ttl"]
    assert set(trial.journal.delivered()) == {1, 2, 3, 4, 5}
    dispatched = Counter(line["sequence"] for line in trial.journal.read("dispatch"))
    assert {number: row["attempts"] for number, row in (await trial.rows()).items()} == dispatched


async def test_a_claim_whose_answer_was_lost_is_undone_and_charges_nothing(trial: Trial) -> None:
    async with _gated(trial, **PATIENT) as (gate, proxy):
        await trial.enqueue(5)
        await _done_unheard(trial, gate, proxy, "lock_token IS NOT NULL", 5)
        assert proxy.reset()
        proxy.pass_through()
        assert await trial.until_published(5) < PATIENT["lock_ttl"] - 3
    await trial.expect_one_delivery_each()


async def test_a_claim_whose_answer_was_lost_is_undone_by_who_does_not_lead_any_more(trial: Trial) -> None:
    """Otherwise its rows would be nobody's until their leases end: the new leader may not touch them."""
    settings: dict[str, Any] = {"lock_ttl": 30.0, "database_timeout": 1.0, "takeover": 2.0}
    async with _gated(trial, **settings) as (gate, proxy):
        await trial.enqueue(5)
        await _done_unheard(trial, gate, proxy, "lock_token IS NOT NULL", 5)
        proxy.hold()
        async with trial.running(**settings):
            await until(lambda: len(trial.journal.events("LeaderGained")) == 2, 15.0, "the takeover")
            proxy.reset()
            proxy.pass_through()
            assert await trial.until_published(5, 25.0) < 2 * BACK_WITHIN
    await trial.expect_one_delivery_each()


async def test_a_claim_that_commits_after_its_client_has_gone_is_undone_all_the_same(trial: Trial) -> None:
    async with _gated(trial, lock_ttl=20.0, database_timeout=4.0, takeover=10.0) as (gate, proxy):
        await trial.enqueue(5)
        claiming = await gate.until_waiting()
        reset = await trial.admin.fetchval("SELECT clock_timestamp()")
        assert proxy.reset()
        # When it claims again it has undone what there was to undo: nothing.
        await trial.until_session(f"query LIKE '%picked%' AND backend_start > '{reset}'", within=5.0)
        assert await gate.until_waiting() == claiming
        await gate.open()
        await trial.until_published(5, 12.0)
    await trial.expect_one_delivery_each()


@pytest.mark.parametrize("topic", ["held", "refused"])
async def test_a_completion_whose_answer_was_lost_is_neither_repeated_nor_called_lost(
    trial: Trial, topic: str
) -> None:
    """The database did as told and could not say so: told again, it is found to have been done."""
    broker, settled = Broker(trial.journal), "published_at IS NOT NULL OR dead_at IS NOT NULL"
    async with _gated(trial, closed=False, broker=broker, **PATIENT) as (gate, proxy):
        await trial.enqueue(1, topic)
        await until(lambda: bool(trial.journal.read("dispatch")), 5.0, "the dispatch")
        await gate.close()
        broker.let_go.set()
        await _done_unheard(trial, gate, proxy, settled, 1)
        assert proxy.reset()
        proxy.pass_through()
        await trial.enqueue(1)
        await trial.until_rows(settled, 2, 10.0)
        told = "Published" if topic == "held" else "Dead"
        await until(lambda: bool(trial.journal.events(told)), 5.0, "hearing of it")
    assert len(trial.journal.read("dispatch")) == 2
    assert len(trial.journal.events("Published")) == (2 if topic == "held" else 1)
    assert len(trial.journal.events("Dead")) == (0 if topic == "held" else 1)
    assert not trial.journal.events("LeaseLost")


async def test_every_wait_is_bounded_while_nothing_answers(trial: Trial) -> None:
    async with FaultProxy.to_postgres(trial.dsn) as proxy, trial.running(proxy.dsn(trial.dsn)):
        await trial.enqueue(1)
        await trial.until_published(1)
        proxy.hold()
        began = time.monotonic()
        await until(lambda: len(trial.journal.events("Reconnecting")) >= 5, 15.0, "trying again")
        assert time.monotonic() - began < 15.0
        proxy.pass_through()
        await trial.enqueue(1)
        await trial.until_published(2)
