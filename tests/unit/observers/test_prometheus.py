"""Events as metrics: names, labels, values, what several observers share, and that nothing is global."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from outbox_core import observer as events
from outbox_core.errors import ConfigError
from outbox_core.observers.prometheus import PrometheusObserver
from outbox_core.observers.prometheus.histogram import BatchHistogram
from outbox_core.status import Count
from outbox_core.table import TableName
from tests.kit.samples import LABELS, TABLE, TOPIC, every_event, kinds, meta, status

OF_TABLE = {"table": "shop.orders_outbox"}


class Scraped:
    """A registry with an observer, and what a scrape of it says."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.observe = PrometheusObserver(self.registry)

    def __call__(self, name: str, **labels: str) -> float | None:
        for family in text_string_to_metric_families(generate_latest(self.registry).decode()):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def test_the_samples_have_every_kind_of_event() -> None:
    assert {type(event) for event in every_event()} == kinds()


def test_every_event_is_counted_where_it_belongs(scraped: Scraped) -> None:
    for event in every_event():
        scraped.observe(event)
    topic = LABELS
    assert scraped("outbox_enqueue_total", **topic) == 1
    assert scraped("outbox_dispatch_total", **topic, result="ok") == 2
    assert scraped("outbox_dispatch_total", **topic, result="failed") == 1
    assert scraped("outbox_dispatch_total", **topic, result="dead") == 1
    assert scraped("outbox_dispatch_latency_seconds_sum", **topic, result="ok") == 0.75
    assert scraped("outbox_dispatch_latency_seconds_bucket", **topic, result="ok", le="0.25") == 1
    assert scraped("outbox_dispatch_latency_seconds_count", **topic, result="dead") == 1
    assert scraped("outbox_dead_total", **topic) == 1
    assert scraped("outbox_retries_total", **topic) == 1
    assert scraped("outbox_released_total", **OF_TABLE) == 3
    assert scraped("outbox_lost_leases_total", **OF_TABLE, write="publish") == 1
    assert scraped("outbox_batch_size_sum", **OF_TABLE, stage="claim") == 3
    assert scraped("outbox_batch_size_sum", **OF_TABLE, stage="publish") == 1
    assert scraped("outbox_claim_seconds_count", **OF_TABLE) == 1
    assert scraped("outbox_database_errors_total", **OF_TABLE) == 1
    assert scraped("outbox_breaker_openings_total", destination="kafka") == 1
    assert scraped("outbox_breaker_open", destination="kafka") == 0
    assert scraped("outbox_relay_leader", **OF_TABLE) == 0
    assert scraped("outbox_cleaned_total", **OF_TABLE, state="published") == 10
    assert scraped("outbox_cleaned_total", **OF_TABLE, state="dead") == 2
    assert scraped("outbox_replayed_total", **OF_TABLE) == 5
    assert scraped("outbox_discarded_total", **OF_TABLE) == 6


def test_gauges_of_a_look_at_the_table(scraped: Scraped) -> None:
    scraped.observe(events.Measured(TABLE, status(Count(10_000, exact=False))))
    assert scraped("outbox_pending", **OF_TABLE) == 10_000
    assert scraped("outbox_count_capped", **OF_TABLE, count="pending") == 1
    assert scraped("outbox_locked", **OF_TABLE) == 3
    assert scraped("outbox_count_capped", **OF_TABLE, count="locked") == 1
    assert scraped("outbox_waiting", **OF_TABLE) == 2
    assert scraped("outbox_dead_rows", **OF_TABLE) == 4
    assert scraped("outbox_count_capped", **OF_TABLE, count="dead_rows") == 0
    assert scraped("outbox_oldest_pending_age_seconds", **OF_TABLE) == 3.5
    assert scraped("outbox_leader_term", **OF_TABLE) == 9
    assert scraped("outbox_leader_heartbeat_age_seconds", **OF_TABLE) == 0.5
    assert scraped("outbox_status_timestamp_seconds", **OF_TABLE) == status().at.timestamp()
    scraped.observe(events.Measured(TABLE, status(Count(0), age=None, leader=False)))
    assert scraped("outbox_pending", **OF_TABLE) == 0
    assert scraped("outbox_count_capped", **OF_TABLE, count="pending") == 0
    assert scraped("outbox_oldest_pending_age_seconds", **OF_TABLE) == 0
    assert math.isnan(scraped("outbox_leader_heartbeat_age_seconds", **OF_TABLE) or 0.0)


def test_leader_and_breaker_go_up_and_down(scraped: Scraped) -> None:
    scraped.observe(events.LeaderGained(TABLE, 1))
    scraped.observe(events.BreakerOpened(TABLE, "nats", "E", 1.0))
    assert scraped("outbox_relay_leader", **OF_TABLE) == 1
    assert scraped("outbox_breaker_open", destination="nats") == 1
    scraped.observe(events.LeaderLost(TABLE, 1, "why"))
    scraped.observe(events.BreakerClosed(TABLE, "nats", 1.0))
    assert scraped("outbox_relay_leader", **OF_TABLE) == 0
    assert scraped("outbox_breaker_open", destination="nats") == 0


def test_an_outage_is_no_retry_of_the_message(scraped: Scraped) -> None:
    scraped.observe(events.Failed(TABLE, meta(), "PROVIDER.UNAVAILABLE away", 1.0, False, 0.1))
    assert scraped("outbox_dispatch_total", **LABELS, result="unavailable") == 1
    assert scraped("outbox_retries_total", **LABELS) is None


def test_delivery_latency_counts_from_the_transaction_and_never_below_nothing(scraped: Scraped) -> None:
    scraped.observe(events.Dispatched(TABLE, [meta(age=100.0), meta(age=-50.0)], [0.1, 0.1]))
    assert scraped("outbox_delivery_latency_seconds_bucket", **LABELS, le="0.005") == 1
    assert scraped("outbox_delivery_latency_seconds_bucket", **LABELS, le="60.0") == 1
    assert scraped("outbox_delivery_latency_seconds_bucket", **LABELS, le="300.0") == 2
    assert 100 <= (scraped("outbox_delivery_latency_seconds_sum", **LABELS) or 0) < 110


def test_a_batch_is_counted_topic_by_topic(scraped: Scraped) -> None:
    messages = [meta("a.b.c.v1"), meta("a.b.d.v1"), meta("a.b.c.v1")]
    scraped.observe(events.Dispatched(TABLE, messages, [1.0, 2.0, 4.0]))
    scraped.observe(events.Dispatched(TABLE, messages[:1], [8.0]))
    of = {"table": str(TABLE), "result": "ok"}
    assert scraped("outbox_dispatch_total", **of, topic="a.b.c.v1") == 3
    assert scraped("outbox_dispatch_latency_seconds_sum", **of, topic="a.b.c.v1") == 13.0
    assert scraped("outbox_dispatch_total", **of, topic="a.b.d.v1") == 1


def test_many_observations_at_once_are_those_made_one_by_one() -> None:
    registry = CollectorRegistry()
    amounts = [0.0, 0.1, 0.1, 0.5, 1.0, 7.0]
    at_once = BatchHistogram("a", "a", registry=registry, buckets=(0.1, 1.0))
    one_by_one = BatchHistogram("b", "b", registry=registry, buckets=(0.1, 1.0))
    at_once.observe_many(amounts)
    for amount in amounts:
        one_by_one.observe(amount)
    for sample in ("_bucket", "_sum", "_count"):
        labels = [{"le": le} for le in ("0.1", "1.0", "+Inf")] if sample == "_bucket" else [{}]
        for each in labels:
            value = registry.get_sample_value("a" + sample, each)
            assert value is not None
            assert value == registry.get_sample_value("b" + sample, each)


def test_a_client_that_keeps_its_figures_otherwise_costs_only_time() -> None:
    seen: list[float] = []

    class Slow(BatchHistogram):
        def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
            seen.append(amount)

    slow = Slow("a", "a", registry=None)
    del slow._buckets
    slow.observe_many([1.0, 2.0])
    assert seen == [1.0, 2.0]


def test_several_observers_and_tables_share_a_registry() -> None:
    registry = CollectorRegistry()
    first, second = PrometheusObserver(registry), PrometheusObserver(registry)
    other = TableName.parse("billing.outbox")
    first(events.Released(TABLE, 1, "why"))
    second(events.Released(TABLE, 2, "why"))
    second(events.Released(other, 4, "why"))
    assert registry.get_sample_value("outbox_released_total", OF_TABLE) == 3
    assert registry.get_sample_value("outbox_released_total", {"table": "billing.outbox"}) == 4
    assert PrometheusObserver(CollectorRegistry()) is not None


def test_nothing_is_global() -> None:
    PrometheusObserver(CollectorRegistry())
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("outbox")]


def test_a_registry_that_is_gone_is_forgotten() -> None:
    import gc
    import weakref

    registry = CollectorRegistry()
    PrometheusObserver(registry)(events.Released(TABLE, 1, "why"))
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None


def test_topics_beyond_the_limit_are_counted_together() -> None:
    registry = CollectorRegistry()
    observe = PrometheusObserver(registry, max_topics=2)
    for number in range(5):
        observe(events.Dispatched(TABLE, [meta(f"order.{number}")], [0.1]))
    of = {"table": str(TABLE), "result": "ok"}
    assert registry.get_sample_value("outbox_dispatch_total", of | {"topic": "order.1"}) == 1
    assert registry.get_sample_value("outbox_dispatch_total", of | {"topic": "order.2"}) is None
    assert registry.get_sample_value("outbox_dispatch_total", of | {"topic": "other"}) == 3


def test_no_label_names_a_tenant_or_a_message(scraped: Scraped) -> None:
    for event in every_event():
        scraped.observe(event)
    text = generate_latest(scraped.registry).decode()
    assert "CANARY" not in text
    assert str(meta().tenant_id) not in text
    assert str(meta().event_id) not in text


@pytest.mark.parametrize("given", [None, "registry", object()])
def test_a_registry_must_be_one(given: object) -> None:
    with pytest.raises(ConfigError, match=r"registry must be a prometheus_client\.CollectorRegistry"):
        PrometheusObserver(given)  # type: ignore[arg-type]


def test_max_topics_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="max_topics must be greater than 0, got 0"):
        PrometheusObserver(CollectorRegistry(), max_topics=0)


def test_a_batch_costs_little_per_message() -> None:
    """Generous: on a quiet machine it is below one microsecond."""
    observe = PrometheusObserver(CollectorRegistry())
    event = events.Dispatched(TABLE, [meta(TOPIC)] * 500, [0.01] * 500)
    best = math.inf
    for _ in range(20):
        began = time.perf_counter()
        observe(event)
        best = min(best, time.perf_counter() - began)
    assert best / 500 < 10e-6


MULTIPROCESS = """
import sys
from prometheus_client import CollectorRegistry
from outbox_core import observer as events
from outbox_core.observers.prometheus import PrometheusObserver
from tests.kit.samples import TABLE, every_event
observe = PrometheusObserver(CollectorRegistry())
for event in every_event():
    observe(event)
observe(events.LeaderGained(TABLE, 1))
"""


def test_workers_add_up_in_the_multiprocess_mode(tmp_path: Path) -> None:
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", MULTIPROCESS], env=environment, check=True, timeout=30)
    program = """
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        check=True,
        timeout=30,
        capture_output=True,
        text=True,
    )
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(run.stdout)
        for sample in family.samples
    }
    assert samples["outbox_enqueue_total", tuple(sorted(LABELS.items()))] == 2
    ok = tuple(sorted((LABELS | {"result": "ok"}).items()))
    assert samples["outbox_dispatch_latency_seconds_sum", ok] == 1.5
    assert samples["outbox_relay_leader", tuple(OF_TABLE.items())] == 1
    assert samples["outbox_pending", tuple(OF_TABLE.items())] == 12
