"""Stopping ends in its time, leaves nothing behind and keeps nothing, at whatever moment it comes."""

from __future__ import annotations

import asyncio
import time

import pytest

from outbox_core.errors import ConfigError, RelayFailed
from outbox_core.observer import Released, Stopped
from outbox_core.relay import Relay
from tests.integration.relay.bench import Bench, relay_tasks
from tests.kit.gates import Gate, ignore
from tests.kit.waiting import until
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.asyncio


async def test_negative_grace_is_refused(bench: Bench) -> None:
    async with bench.relay(ignore) as relay:
        with pytest.raises(
            ConfigError, match=r"grace must be a number of seconds that is not negative, got -1"
        ):
            await relay.stop(-1)
        assert relay.state == "running"


async def test_stop_waits_for_what_is_in_dispatch_and_gives_back_the_rest(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(*range(10))
    relay = bench.relay(gate, concurrency=3, dispatch_timeout=5.0, lock_ttl=30.0)
    await relay.start()
    await until(lambda: gate.inside == 3)
    stopping = asyncio.create_task(relay.stop(grace=5.0))

    async def given_back() -> bool:
        return await bench.states() == {"in_flight": 3, "pending": 7}

    await until(given_back)
    assert not stopping.done()
    gate.opened.set()
    await stopping
    rows = await bench.rows()
    assert [row["state"] for row in rows] == ["published"] * 3 + ["pending"] * 7
    assert [row["attempts"] for row in rows] == [1] * 3 + [0] * 7
    # Once more if the claim that was under way came upon them after that, and gave them back in its turn.
    released = [(event.rows, event.reason) for event in bench.heard.of(Released)]
    assert released in ([(7, "the relay stopped")], [(7, "the relay stopped")] * 2)


async def test_no_claim_after_stop_was_called(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(1)
    relay = bench.relay(gate, dispatch_timeout=5.0, lock_ttl=30.0)
    await relay.start()
    await until(lambda: gate.inside == 1)
    stopping = asyncio.create_task(relay.stop(grace=1.0))
    await until(lambda: relay.state == "stopping")
    await bench.enqueue(2)
    await stopping
    assert gate.inside == 1
    assert [row["attempts"] for row in await bench.rows()] == [1, 0]


@pytest.mark.parametrize("grace", [0.0, 0.4])
async def test_stop_is_back_within_its_grace_and_a_second(bench: Bench, grace: float) -> None:
    gate = Gate()
    await bench.enqueue(*range(5))
    relay = bench.relay(gate, dispatch_timeout=20.0, lock_ttl=60.0)
    await relay.start()
    await until(lambda: gate.inside == 5)
    began = time.monotonic()
    await relay.stop(grace)
    assert grace <= time.monotonic() - began < grace + 1.5
    await relay.wait()
    assert await bench.states() == {"pending": 5}
    assert {row["last_error"] for row in await bench.rows()} == {
        "TX.INTERRUPTED the relay stopped before the dispatch ended"
    }


async def test_a_stop_tells_how_many_outcomes_could_not_be_recorded(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(*range(5))
    async with FaultProxy.to_postgres(bench.dsn) as proxy:
        dsn, bench.dsn = bench.dsn, proxy.dsn(bench.dsn)
        relay = bench.relay(gate, dispatch_timeout=5.0, lock_ttl=30.0)
        await relay.start()
        await until(lambda: gate.inside == 5)
        proxy.hold()
        gate.opened.set()
        began = time.monotonic()
        await relay.stop(0.5)
        assert time.monotonic() - began < 2.5
    bench.dsn = dsn
    assert [event.abandoned for event in bench.heard.of(Stopped)] == [5]
    assert await bench.states() == {"in_flight": 5}


async def test_a_second_stop_shortens_the_first(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(1)
    relay = bench.relay(gate, dispatch_timeout=20.0, lock_ttl=60.0)
    await relay.start()
    await until(lambda: gate.inside == 1)
    first = asyncio.create_task(relay.stop(grace=15.0))
    await until(lambda: relay.state == "stopping")
    began = time.monotonic()
    await relay.stop(grace=0.1)
    await first
    assert time.monotonic() - began < 3


class Slow(Gate):
    """It never gets ready."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.left = 0

    async def __aenter__(self) -> None:
        self.entered.set()
        await asyncio.Event().wait()

    async def __aexit__(self, *error: object) -> None:
        self.left += 1


async def test_a_stop_while_starting_makes_the_start_fail_at_once(bench: Bench) -> None:
    slow = Slow()
    relay = bench.relay(slow, dispatch_timeout=20.0, lock_ttl=60.0)
    starting = asyncio.create_task(relay.start())
    await slow.entered.wait()
    assert relay.state == "starting"
    began = time.monotonic()
    await relay.stop(grace=0.1)
    assert time.monotonic() - began < 2
    assert relay.state == "stopped"
    with pytest.raises(RelayFailed, match=r"^the relay was stopped before it was running$"):
        await starting
    await relay.wait()
    assert not relay_tasks()
    await bench.nothing_is_left()
    assert await bench.relay(ignore).drain() == 0


async def test_a_stop_while_starting_ends_the_foreground_forms_in_peace(bench: Bench) -> None:
    """They were asked to run until they are stopped, and that is what they did."""
    for form in (lambda relay: relay.run(signals=False), Relay.run_once, Relay.drain):
        slow = Slow()
        relay = bench.relay(slow, dispatch_timeout=20.0, lock_ttl=60.0)
        running = asyncio.create_task(form(relay))
        await slow.entered.wait()
        await relay.stop(grace=0.1)
        assert not await running
        assert relay.state == "stopped"
    await bench.nothing_is_left()


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelling_start_leaves_nothing(bench: Bench, times: int) -> None:
    """However often, and when it is the entry to a block."""
    slow = Slow()
    relay = bench.relay(slow, dispatch_timeout=20.0, lock_ttl=60.0)

    async def block() -> None:
        async with relay:
            pytest.fail("it never got ready")

    starting = asyncio.create_task(block())
    await slow.entered.wait()
    for _ in range(times):
        starting.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: relay.state == "stopped" and not relay_tasks())
    assert slow.left == 0
    await bench.nothing_is_left()


async def test_cancelling_a_block_at_any_moment_of_its_start_leaves_nothing(bench: Bench) -> None:
    """The start is cut off after so many turns of the event loop, until it gets through."""
    relay = bench.relay(ignore)

    async def block(inside: asyncio.Event) -> None:
        async with relay:
            inside.set()
            await asyncio.Event().wait()

    turns, inside = 0, asyncio.Event()
    while not inside.is_set():
        started = asyncio.create_task(block(inside))
        for _ in range(turns):
            await asyncio.sleep(0)
        started.cancel()
        with pytest.raises(asyncio.CancelledError):
            await started
        assert relay.state == "stopped"
        assert not relay_tasks()
        turns = turns * 3 // 2 + 1
    await bench.nothing_is_left()
    assert turns > 10


@pytest.mark.parametrize("form", ["run", "drain"])
async def test_cancelling_stops_in_order(bench: Bench, form: str) -> None:
    gate = Gate()
    await bench.enqueue(*range(4))
    relay = bench.relay(gate, concurrency=2, dispatch_timeout=5.0, lock_ttl=30.0)
    running = asyncio.create_task(relay.run(signals=False) if form == "run" else relay.drain())
    await until(lambda: gate.inside == 2)
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 3
    assert relay.state == "stopped"
    rows = await bench.rows()
    assert [(row["state"], row["attempts"]) for row in rows] == [("pending", 1)] * 2 + [("pending", 0)] * 2
    assert not relay_tasks()
    await bench.nothing_is_left()


async def test_cancelling_again_stops_at_once(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(1)
    relay = bench.relay(gate, dispatch_timeout=5.0, lock_ttl=30.0)
    running = asyncio.create_task(relay.run(signals=False))
    await until(lambda: gate.inside == 1)
    running.cancel()
    await until(lambda: relay.state == "stopping")
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 1
    assert not relay_tasks()
    await bench.nothing_is_left()
