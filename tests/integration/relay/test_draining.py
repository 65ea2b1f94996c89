"""Delivering what is due, once: for tests and for cron jobs."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from datetime import timedelta

import pytest

from outbox_core.errors import StorageError, StorageUnavailable
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import LeaderGained, Released
from outbox_core.relay import Relay
from tests.integration.relay.bench import TABLE, Bench, relay_tasks
from tests.kit.brokers import unavailable
from tests.kit.gates import Gate, ignore
from tests.kit.waiting import until
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.asyncio


async def test_stop_ends_a_drain(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(*range(3))
    relay = bench.relay(gate, concurrency=1, dispatch_timeout=5.0, lock_ttl=30.0)
    draining = asyncio.create_task(relay.drain(timeout=20.0))
    await until(lambda: gate.inside == 1)
    await relay.stop(grace=0.1)
    assert await draining == 0
    assert await bench.states() == {"pending": 3}


async def test_drain_returns_what_was_published_and_leaves_what_is_not_due(bench: Bench) -> None:
    await bench.enqueue(*range(250))
    await bench.enqueue("later", delay=timedelta(hours=1))

    async def dispatch(message: DispatchedMessage) -> None:
        if message.payload == b"7":
            raise ValueError("not this one")

    relay = bench.relay(dispatch, backoff_base=60.0, backoff_cap=60.0)
    assert await relay.drain() == 249
    assert await bench.states() == {"published": 249, "pending": 2}
    assert await relay.drain() == 0
    assert relay.state == "stopped"


@pytest.mark.parametrize("keys", [[None], ["one"], ["one", "two", "three"]])
async def test_drain_ends_while_the_destination_is_away(bench: Bench, keys: list[str | None]) -> None:
    for key in keys:
        await bench.enqueue(1, 2, key=key)
    relay = bench.relay(unavailable, backoff_base=60.0, backoff_cap=60.0, concurrency=1)
    assert await relay.drain(timeout=10.0) == 0
    assert {(row["state"], row["attempts"]) for row in await bench.rows()} == {("pending", 0)}


async def test_drain_that_is_not_done_in_time_says_so_and_gives_everything_back(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(*range(3))
    relay = bench.relay(gate, concurrency=1, dispatch_timeout=2.0, lock_ttl=30.0)
    with pytest.raises(TimeoutError, match=r"not everything that is due was delivered within 0\.3 s"):
        await relay.drain(timeout=0.3)
    assert await bench.states() == {"pending": 3}
    assert not relay_tasks()


@pytest.mark.parametrize("form", ["run_once", "drain"])
async def test_a_database_that_goes_away_meanwhile_is_an_error_with_settings_as_they_are(
    bench: Bench, form: str
) -> None:
    """Its own, and long before the time is over: leadership is lost with it, and nobody else leads either."""
    gate = Gate()
    await bench.enqueue(*range(5))
    async with FaultProxy.to_postgres(bench.dsn) as proxy:
        relay = Relay(proxy.dsn(bench.dsn), table=TABLE, dispatcher=gate)
        once = asyncio.create_task(getattr(relay, form)(timeout=120.0))
        await until(lambda: gate.inside == 5)
        proxy.refuse()
        proxy.reset()
        gate.opened.set()
        async with asyncio.timeout(30.0):
            with pytest.raises(StorageUnavailable):
                await once
    assert not relay_tasks()


@pytest.mark.parametrize("form", ["run_once", "drain"])
async def test_a_timeout_is_kept_however_long_a_dispatch_may_take(bench: Bench, form: str) -> None:
    gate = Gate()
    await bench.enqueue(1)
    relay = bench.relay(gate, dispatch_timeout=20.0 if form == "drain" else 2.0, lock_ttl=60.0)
    began = time.monotonic()
    late = r"the dispatcher is slow, or another relay leads, or the database does not answer$"
    with pytest.raises(TimeoutError, match=late) if form == "drain" else nullcontext():
        await getattr(relay, form)(timeout=0.5)
    assert time.monotonic() - began < 6.0
    assert await bench.states() == {"pending": 1}


async def test_what_is_in_dispatch_when_the_time_is_over_may_end(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(1, 2)
    relay = bench.relay(gate, concurrency=1, dispatch_timeout=5.0, lock_ttl=60.0)
    running = asyncio.create_task(relay.run_once(timeout=1.0))
    await until(lambda: gate.inside == 1)
    await until(lambda: bool(bench.heard.of(Released)))  # its time is over: what has not begun goes back
    gate.opened.set()
    assert await running == 1
    assert await bench.states() == {"published": 1, "pending": 1}
    assert sorted(row["attempts"] for row in await bench.rows()) == [0, 1]


async def test_a_timeout_is_kept_when_the_database_does_not_answer(bench: Bench) -> None:
    async with FaultProxy.to_postgres(bench.dsn) as proxy:
        gate = Gate()
        await bench.enqueue(1)
        relay = Relay(
            proxy.dsn(bench.dsn),
            table=TABLE,
            dispatcher=gate,
            database_timeout=20.0,
            takeover=20.0,
            lock_ttl=90.0,
        )
        draining = asyncio.create_task(relay.drain(timeout=3.0))
        await until(lambda: gate.inside == 1)
        proxy.hold()
        gate.opened.set()
        began = time.monotonic()
        with pytest.raises((TimeoutError, StorageError)):
            await draining
        assert time.monotonic() - began < 9.0


async def test_run_once_delivers_what_is_due(bench: Bench) -> None:
    await bench.enqueue(1, 2, 3)
    assert await bench.relay(ignore).run_once() == 3
    assert await bench.states() == {"published": 3}
    await bench.nothing_is_left()


async def test_run_once_returns_0_while_another_relay_leads(bench: Bench) -> None:
    async with bench.relay(ignore):
        await until(lambda: bool(bench.heard.of(LeaderGained)))
        assert await bench.relay(ignore).run_once(timeout=0.3) == 0


async def test_run_once_leaves_a_table_to_the_relay_that_leads_it(bench: Bench) -> None:
    async with bench.relay(ignore):
        started = time.monotonic()
        assert await bench.relay(ignore).run_once(timeout=20) == 0
        assert time.monotonic() - started < 10
