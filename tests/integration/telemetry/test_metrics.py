"""A real relay on a real table, scraped over HTTP and read by the official parser."""

from __future__ import annotations

import asyncio
import urllib.request
from contextlib import AsyncExitStack
from math import nan

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from outbox_core import Outbox
from outbox_core.errors import BrokerUnavailable, PermanentError
from outbox_core.integrations.http import Address, health_routes, serve
from outbox_core.integrations.metrics import metrics_route
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.monitor import MonitorSettings
from outbox_core.observer import BreakerClosed, BreakerOpened, Measured
from outbox_core.observers.prometheus import PrometheusObserver
from tests.integration.relay.bench import TABLE, TOPIC, Bench
from tests.kit.gates import ignore
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
OF_TABLE = frozenset({("table", TABLE)})
OF_TOPIC = OF_TABLE | {("topic", TOPIC)}
OFTEN = MonitorSettings(interval=0.05)


async def scrape(address: Address) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    url = f"http://{address.host}:{address.port}/debug/prometheus"

    def read() -> str:
        with urllib.request.urlopen(url, timeout=10) as response:
            text: str = response.read().decode()
            return text

    families = text_string_to_metric_families(await asyncio.to_thread(read))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


class Choosy:
    """Refuses some for good, fails others once, is away at the first of a kind."""

    name = "broker"

    def __init__(self) -> None:
        self.away = True

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        does = message.json()
        if does == "dies":
            raise PermanentError("refused")
        if does == "fails" and message.meta.attempts == 1:
            raise ValueError("once")
        if does == "hides" and self.away:
            self.away = False
            raise BrokerUnavailable("no answer")


async def test_a_scrape_tells_what_happened(bench: Bench) -> None:
    registry = CollectorRegistry()
    observe = PrometheusObserver(registry)
    outbox = Outbox(TABLE, observers=[observe])
    contents = ["arrives"] * 10 + ["dies", "fails", "hides"]
    async with bench.connection.transaction():
        await outbox.enqueue(bench.connection, Message(TOPIC, contents[0]))
        await outbox.enqueue_many(bench.connection, [Message(TOPIC, content) for content in contents[1:]])
    relay = bench.relay(Choosy(), observers=[observe], monitor=OFTEN)
    async with AsyncExitStack() as stack:
        routes = {"/debug/prometheus": metrics_route(registry), **health_routes(relay)}
        address = await stack.enter_async_context(serve("127.0.0.1", 0, routes))
        await stack.enter_async_context(relay)
        assert await bench.settled() == {"published": 12, "dead": 1}
        seen = len(bench.heard.of(Measured))
        await until(lambda: len(bench.heard.of(Measured)) > seen + 1)
        found = await scrape(address)
        assert found["outbox_enqueue_total", OF_TOPIC] == 13
        assert found["outbox_dispatch_total", OF_TOPIC | {("result", "ok")}] == 12
        assert found["outbox_dispatch_total", OF_TOPIC | {("result", "dead")}] == 1
        assert found["outbox_dispatch_total", OF_TOPIC | {("result", "failed")}] == 1
        assert found["outbox_dispatch_total", OF_TOPIC | {("result", "unavailable")}] >= 1
        assert found["outbox_dead_total", OF_TOPIC] == 1
        assert found["outbox_retries_total", OF_TOPIC] == 1
        assert found["outbox_dispatch_latency_seconds_count", OF_TOPIC | {("result", "ok")}] == 12
        assert found["outbox_delivery_latency_seconds_count", OF_TOPIC] == 12
        assert found["outbox_batch_size_sum", OF_TABLE | {("stage", "publish")}] == 12
        assert found["outbox_relay_leader", OF_TABLE] == 1
        assert found["outbox_leader_term", OF_TABLE] >= 1
        assert found["outbox_leader_heartbeat_age_seconds", OF_TABLE] < 10
        assert found["outbox_pending", OF_TABLE] == 0
        assert found["outbox_locked", OF_TABLE] == 0
        assert found["outbox_dead_rows", OF_TABLE] == 1
        assert found["outbox_count_capped", OF_TABLE | {("count", "pending")}] == 0
        assert found["outbox_breaker_openings_total", frozenset({("destination", "broker")})] >= 1
        assert found["outbox_breaker_open", frozenset({("destination", "broker")})] == 0
        await relay.stop()
        assert (await scrape(address))["outbox_relay_leader", OF_TABLE] == 0


async def test_the_leaders_heartbeat_shows_long_before_the_second_regular_look(bench: Bench) -> None:
    """A relay looks at once, when it does not lead yet, and with its usual interval."""
    registry = CollectorRegistry()

    def age() -> float | None:
        return registry.get_sample_value("outbox_leader_heartbeat_age_seconds", {"table": TABLE})

    async with bench.relay(ignore, observers=[PrometheusObserver(registry)], monitor=MonitorSettings()):
        await until(lambda: 0 <= (nan if (seen := age()) is None else seen) < 8, timeout=8.0)
        assert registry.get_sample_value("outbox_leader_term", {"table": TABLE}) == 1


async def test_looks_become_rare_although_nobody_leads(bench: Bench) -> None:
    begun = asyncio.get_running_loop().time()
    settings = MonitorSettings(interval=1.0)
    async with bench.relay(ignore, single_active=False, monitor=settings):
        await until(lambda: len(bench.heard.of(Measured)) >= 5)
    # At 0, 0.25, 0.75, 1.75 and 2.75 s.
    assert asyncio.get_running_loop().time() - begun >= 2.75


async def test_an_outage_and_its_backlog_show(bench: Bench) -> None:
    registry = CollectorRegistry()
    reachable = asyncio.Event()

    class Broker:
        name = "broker"

        async def dispatch(self, message: DispatchedMessage, /) -> None:
            if not reachable.is_set():
                raise BrokerUnavailable("no answer")

    await bench.enqueue(*range(5))
    relay = bench.relay(Broker(), observers=[PrometheusObserver(registry)], monitor=OFTEN)
    async with relay:
        await until(lambda: bool(bench.heard.of(BreakerOpened)))
        labels = {"table": TABLE}
        await until(lambda: registry.get_sample_value("outbox_pending", labels) == 5)
        assert registry.get_sample_value("outbox_breaker_open", {"destination": "broker"}) == 1
        assert any("broker has been unavailable" in reason for reason in relay.health().reasons)
        reachable.set()
        await bench.settled()
        await until(lambda: bool(bench.heard.of(BreakerClosed)))
        await until(lambda: registry.get_sample_value("outbox_pending", labels) == 0)
        assert registry.get_sample_value("outbox_breaker_open", {"destination": "broker"}) == 0


async def test_a_roll_back_does_not_take_back_the_count(bench: Bench) -> None:
    registry = CollectorRegistry()
    outbox = Outbox(TABLE, observers=[PrometheusObserver(registry)])
    transaction = bench.connection.transaction()
    await transaction.start()
    await outbox.enqueue(bench.connection, Message(TOPIC, 1))
    await transaction.rollback()
    assert registry.get_sample_value("outbox_enqueue_total", {"table": TABLE, "topic": TOPIC}) == 1
    assert await bench.rows() == []


async def test_an_observer_that_fails_cannot_break_an_enqueue(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(event: object) -> None:
        raise RuntimeError("no")

    outbox = Outbox(TABLE, observers=[fails])
    async with bench.connection.transaction():
        await outbox.enqueue(bench.connection, Message(TOPIC, 1))
    assert len(await bench.rows()) == 1
    assert ".fails failed on Enqueued" in caplog.text
