"""The metrics: their names, labels, help and buckets. `docs/operations/metrics.md` has the same list for operators."""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakKeyDictionary

from outbox_core.extras import needs_extra
from outbox_core.observers.prometheus.histogram import BatchHistogram

with needs_extra("prometheus", feature="Prometheus metrics"):
    from prometheus_client import CollectorRegistry, Counter, Gauge

DISPATCH_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
DELIVERY_BUCKETS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0,
)  # fmt: skip
BATCH_BUCKETS: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0)
_TABLE: Final = ("table",)
_TOPIC: Final = ("table", "topic")
_RESULT: Final = ("table", "topic", "result")
_DESTINATION: Final = ("destination",)


class Metrics:
    """All metrics, in one registry. `of` makes them once per registry, so that any number of observers share them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: tuple[str, ...] = _TABLE) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def latest(name: str, text: str, labels: tuple[str, ...] = _TABLE) -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode="livemostrecent")

        def highest(name: str, text: str, labels: tuple[str, ...] = _TABLE) -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode="livemax")

        def histogram(
            name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]
        ) -> BatchHistogram:
            return BatchHistogram(name, text, labels, registry=registry, buckets=buckets)

        self.enqueued = counter(
            "outbox_enqueue_total",
            "Messages passed to enqueue, those of transactions that rolled back later included.",
            _TOPIC,
        )
        self.dispatched = counter(
            "outbox_dispatch_total",
            "Deliveries by how they ended: ok, failed (put off, the attempt charged), unavailable (put off because the"
            " destination was away), dead.",
            _RESULT,
        )
        self.dispatch_latency = histogram(
            "outbox_dispatch_latency_seconds",
            "From handing a message to the dispatcher until its outcome.",
            _RESULT,
            DISPATCH_BUCKETS,
        )
        self.delivery_latency = histogram(
            "outbox_delivery_latency_seconds",
            "From the start of the transaction that wrote a message until the broker's acknowledgement, wanted delays"
            " included; across the database's clock and the relay's.",
            _TOPIC,
            DELIVERY_BUCKETS,
        )
        self.dead = counter("outbox_dead_total", "Messages given up.", _TOPIC)
        self.retries = counter(
            "outbox_retries_total",
            "Failed deliveries, charged to the message, that will be tried again.",
            _TOPIC,
        )
        self.released = counter("outbox_released_total", "Leased messages given back undispatched.")
        self.lost_leases = counter(
            "outbox_lost_leases_total",
            "Outcomes that came too late: another owner had the message.",
            ("table", "write"),
        )
        self.batch_size = histogram(
            "outbox_batch_size",
            "Messages of one claim, and of one record of acknowledgements.",
            ("table", "stage"),
            BATCH_BUCKETS,
        )
        self.claim_seconds = histogram(
            "outbox_claim_seconds", "How long claims that found messages took.", _TABLE, DISPATCH_BUCKETS
        )
        self.reconnects = counter(
            "outbox_database_errors_total",
            "Times the database did not answer the relay, each followed by another try.",
        )
        self.breaker_open = highest(
            "outbox_breaker_open",
            "1 while a destination is away and its messages wait, else 0.",
            _DESTINATION,
        )
        self.breaker_openings = counter(
            "outbox_breaker_openings_total", "Times a destination was found to be away.", _DESTINATION
        )
        self.leader = highest("outbox_relay_leader", "1 while this relay leads the table, else 0.")
        self.leader_term = latest(
            "outbox_leader_term", "The term of whoever leads the table: each change of leader adds 1."
        )
        self.leader_heartbeat = latest(
            "outbox_leader_heartbeat_age_seconds",
            "Seconds since the leader's last sign of life; NaN when nobody leads.",
        )
        self.pending = latest(
            "outbox_pending", "Messages neither published nor dead, in flight ones included."
        )
        self.waiting = latest("outbox_waiting", "Of the pending messages, those not due yet.")
        self.locked = latest("outbox_locked", "Of the pending messages, those leased by a relay.")
        self.dead_rows = latest("outbox_dead_rows", "Dead messages in the table.")
        self.capped = latest(
            "outbox_count_capped",
            "1 when the gauge named by count (pending, waiting, locked, dead_rows) is a lower bound, else 0.",
            ("table", "count"),
        )
        self.oldest_age = latest(
            "outbox_oldest_pending_age_seconds",
            "How long the longest waiting of the due messages has waited; 0 when none.",
        )
        self.measured_at = latest(
            "outbox_status_timestamp_seconds",
            "When the gauges read from the database were last read, as Unix time.",
        )
        self.cleaned = counter("outbox_cleaned_total", "Messages deleted by the cleaner.", ("table", "state"))
        self.replayed = counter("outbox_replayed_total", "Messages an operator had delivered once more.")
        self.discarded = counter("outbox_discarded_total", "Dead messages deleted by an operator.")

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Metrics:
        """The metrics of a registry, made when it is first asked for."""
        with _making:
            metrics = _by_registry.get(registry)
            if metrics is None:
                metrics = _by_registry[registry] = cls(registry)
            return metrics


_making: Final = threading.Lock()
_by_registry: Final[WeakKeyDictionary[CollectorRegistry, Metrics]] = WeakKeyDictionary()
