"""A broker that is away is not the message's fault; a message that drives the broker away is its own."""

from __future__ import annotations

import asyncio
import time

import pytest

from outbox_core.dispatcher import Dispatcher
from outbox_core.errors import BrokerUnavailable
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import BreakerClosed, BreakerOpened, Claimed, Dead, Failed
from tests.integration.relay.bench import Bench
from tests.kit.brokers import KINDS, Broker, ProbingBroker
from tests.kit.settings import FEW_ATTEMPTS
from tests.kit.tuning import constant
from tests.kit.waiting import quiet_for, until

pytestmark = pytest.mark.asyncio
PROBE_SECONDS: float = constant("probe_seconds")


@pytest.mark.parametrize("rows", [1, 2, 20])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_outage_kills_nothing_and_costs_no_attempt(bench: Bench, kind: str, rows: int) -> None:
    broker = KINDS[kind]()
    broker.unavailable = True
    await bench.enqueue(*range(rows))
    async with bench.relay(broker, **FEW_ATTEMPTS):
        await until(lambda: bool(bench.heard.of(BreakerOpened)))

        async def dead_or_charged() -> bool:
            return any(row["state"] == "dead" or row["attempts"] > 1 for row in await bench.rows())

        await quiet_for(1.0, dead_or_charged, "a dead row, or one with a second attempt,")
        broker.unavailable = False
        assert await bench.settled() == {"published": rows}
    assert {row["attempts"] for row in await bench.rows()} == {1}
    assert not bench.heard.of(Dead)
    assert not [event for event in bench.heard.of(Failed) if event.charged]
    assert len(bench.heard.of(BreakerOpened)) == len(bench.heard.of(BreakerClosed)) == 1
    assert bench.heard.of(BreakerOpened)[0].error == "PROVIDER.UNAVAILABLE the connection was refused"
    assert bench.heard.of(BreakerClosed)[0].seconds > 0.9


@pytest.mark.parametrize("kind", KINDS)
async def test_silence_is_an_outage_when_three_time_out_and_nothing_is_acknowledged(
    bench: Bench, kind: str
) -> None:
    broker = KINDS[kind](hangs=True)
    broker.unavailable = True
    await bench.enqueue(*range(6))
    async with bench.relay(broker, **FEW_ATTEMPTS):

        async def charged() -> bool:
            return any(row["attempts"] > 1 for row in await bench.rows())

        await quiet_for(1.5, charged, "a second attempt")
        broker.unavailable = False
        assert await bench.settled() == {"published": 6}
    assert {row["attempts"] for row in await bench.rows()} == {1}
    assert bench.heard.of(BreakerOpened)[0].error == "TX.TIMEOUT not acknowledged within 0.2 s"


async def test_a_lone_message_survives_silence_too(bench: Bench) -> None:
    """Two timeouts are its own, the third makes it an outage."""
    broker = Broker(hangs=True)
    broker.unavailable = True
    await bench.enqueue(1)
    async with bench.relay(broker, **FEW_ATTEMPTS):
        await until(lambda: broker.calls[b"1"] >= 8)
        assert (await bench.row())["attempts"] <= 3
        broker.unavailable = False
        assert await bench.settled() == {"published": 1}
    assert (await bench.row())["attempts"] == 3


async def test_one_timeout_is_an_outage_when_the_probe_fails(bench: Bench) -> None:
    broker = ProbingBroker(hangs=True)
    broker.unavailable = True
    await bench.enqueue(1)
    async with bench.relay(broker, **FEW_ATTEMPTS):
        await until(lambda: bool(bench.heard.of(BreakerOpened)))
        assert broker.probes == 1
        broker.unavailable = False
        assert await bench.settled() == {"published": 1}
    assert (await bench.row())["attempts"] == 1


async def test_one_timeout_is_the_messages_own_when_the_probe_succeeds(bench: Bench) -> None:
    class Picky(ProbingBroker):
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            if message.payload == b"0":
                await asyncio.Event().wait()

    await bench.enqueue(*range(3))
    async with bench.relay(Picky(), **FEW_ATTEMPTS):
        assert await bench.settled() == {"published": 2, "dead": 1}
    assert not bench.heard.of(BreakerOpened)
    assert [event.charged for event in bench.heard.of(Failed)] == [True, True]


@pytest.mark.parametrize("kind", KINDS)
async def test_half_open_lets_one_message_ahead(bench: Bench, kind: str) -> None:
    broker = KINDS[kind]()
    broker.unavailable = True
    await bench.enqueue(*range(30))
    async with bench.relay(broker, **FEW_ATTEMPTS):
        await until(lambda: bool(bench.heard.of(BreakerOpened)) and broker.at_once == 0)
        broker.most_at_once = 0
        tries = broker.calls.total()
        if isinstance(broker, ProbingBroker):
            probes = broker.probes
            await until(lambda: broker.probes >= probes + 4)
            assert broker.calls.total() == tries  # the probe goes ahead, and no message with it
        else:
            await until(lambda: broker.calls.total() >= tries + 4)
        assert broker.most_at_once <= 1
        broker.unavailable = False
        assert await bench.settled() == {"published": 30}
    assert broker.most_at_once > 1


async def test_nothing_is_claimed_while_the_only_destination_is_away(bench: Bench) -> None:
    broker = Broker()
    broker.unavailable = True
    for key in ("a", "b", None):
        await bench.enqueue(*range(10), key=key)
    async with bench.relay(
        broker, **FEW_ATTEMPTS | {"backoff_base": 30.0, "backoff_cap": 30.0, "concurrency": 2}
    ):
        await until(lambda: bool(bench.heard.of(BreakerOpened)))

        async def all_back() -> bool:
            return await bench.states() == {"pending": 30}

        await until(all_back)
        claims, busy = len(bench.heard.of(Claimed)), time.process_time()
        await bench.enqueue("new")
        # Twenty poll intervals.
        await quiet_for(1.0, lambda: len(bench.heard.of(Claimed)) != claims, "a claim")
        assert time.process_time() - busy < 0.6
    assert {row["attempts"] for row in await bench.rows()} == {0}


class Router:
    """Two destinations by topic."""

    def __init__(self, leaves: dict[str, Dispatcher]) -> None:
        self.leaves = leaves

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        await self.route(message.meta.topic).dispatch(message)

    def route(self, topic: str, /) -> Dispatcher:
        return self.leaves[topic]


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("key", [None, "k"])
async def test_a_dead_leaf_does_not_stop_the_other(bench: Bench, hangs: bool, key: str | None) -> None:
    dead, alive = Broker(hangs=hangs), Broker()
    dead.unavailable = True
    for number in range(10):
        await bench.enqueue(number, topic="to.dead", key=key and f"{key}{number % 3}")
        await bench.enqueue(number, topic="to.alive", key=key and f"{key}{number % 3}x")
    router = Router({"to.dead": dead, "to.alive": alive})
    settings = FEW_ATTEMPTS | {"max_attempts": 5, "backoff_base": 1.0, "backoff_cap": 1.0}
    async with bench.relay(router, **settings):
        await until(lambda: len(alive.calls) == 10 and alive.calls.total() == 10)
        await until(lambda: bool(bench.heard.of(BreakerOpened)))
        calls, claimed = dead.calls.total(), sum(event.rows for event in bench.heard.of(Claimed))
        for number in range(10, 30):
            await bench.enqueue(number, topic="to.alive")
        await until(lambda: len(alive.calls) == 30)
        # What was claimed meanwhile was the other destination's, save what half-opened this one.
        claimed_since = sum(event.rows for event in bench.heard.of(Claimed)) - claimed
        assert claimed_since <= 20 + 10 * (1 + dead.calls.total() - calls)
        dead.unavailable = False
        assert await bench.settled() == {"published": 40}
    assert {event.destination for event in bench.heard.of(BreakerOpened)} == {"Broker"}
    assert not bench.heard.of(Dead)


@pytest.mark.parametrize("error", [RuntimeError("x"), asyncio.CancelledError(), BrokerUnavailable("y")])
async def test_whatever_a_probe_raises_means_that_the_broker_is_away(
    bench: Bench, error: BaseException
) -> None:
    """A client whose connection is gone often answers with the cancellation of a future of its own."""
    broker = ProbingBroker()
    broker.unavailable = True

    async def probe() -> None:
        broker.probes += 1
        if broker.unavailable:
            raise error

    broker.probe = probe  # type: ignore[method-assign]
    await bench.enqueue(1)
    async with bench.relay(broker, **FEW_ATTEMPTS) as relay:
        await until(lambda: broker.probes >= 3 or relay.state != "running")
        assert relay.state == "running"
        assert broker.calls.total() == 1
        broker.unavailable = False
        assert await bench.settled() == {"published": 1}


async def test_stopping_in_an_outage_leaves_the_rows_as_they_were(bench: Bench) -> None:
    broker = ProbingBroker()
    broker.unavailable = True
    await bench.enqueue(*range(10))
    relay = bench.relay(broker, **FEW_ATTEMPTS)
    await relay.start()
    await until(lambda: broker.probes >= 2)
    began = time.monotonic()
    await relay.stop(grace=1.0)
    assert time.monotonic() - began < 2
    rows = await bench.rows()
    assert {(row["state"], row["attempts"]) for row in rows} == {("pending", 0)}


async def test_stopping_while_a_timeout_is_looked_into_loses_no_outcome(bench: Bench) -> None:
    broker = ProbingBroker(hangs=True)
    broker.unavailable = True
    await bench.enqueue(1)
    relay = bench.relay(broker, **FEW_ATTEMPTS | {"dispatch_timeout": 1.0})
    await relay.start()
    await until(lambda: broker.probes == 1)
    await relay.stop(grace=0.2)
    await relay.wait()
    row = await bench.row()
    assert (row["state"], row["last_error"]) == ("pending", "TX.TIMEOUT not acknowledged within 1 s")


async def test_an_outage_of_the_shortest_kind_is_over_at_the_first_acknowledgement(bench: Bench) -> None:
    broker = Broker()
    broker.unavailable = True
    await bench.enqueue(*range(200))
    async with bench.relay(broker, **FEW_ATTEMPTS):
        await until(lambda: bool(bench.heard.of(BreakerOpened)))
        broker.unavailable = False
        assert await bench.settled() == {"published": 200}
    assert broker.most_at_once > 10


async def test_a_broker_that_can_be_probed_is_looked_at_every_few_seconds_however_long_it_is_away(
    bench: Bench,
) -> None:
    """What a wait may come to at most is for messages; a probe costs none of them."""
    broker = ProbingBroker()
    broker.unavailable = True
    await bench.enqueue(1)
    settings = FEW_ATTEMPTS | {"backoff_base": 60.0, "backoff_cap": 60.0}
    async with bench.relay(broker, **settings):
        await until(lambda: bool(bench.heard.of(BreakerOpened)))
        assert bench.heard.of(BreakerOpened)[0].retry_in == pytest.approx(PROBE_SECONDS, abs=0.5)
        await until(lambda: broker.probes >= 1, 3 * PROBE_SECONDS)
        broker.unavailable = False
        back = time.monotonic()
        assert await bench.settled(4 * PROBE_SECONDS) == {"published": 1}
        assert time.monotonic() - back < 2 * PROBE_SECONDS
    assert broker.calls.total() == 2
