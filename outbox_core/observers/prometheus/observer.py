"""Events as metrics. Cheap by batches: what hundreds of messages have in common is counted once."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from outbox_core import observer as events
from outbox_core.errors import ConfigError
from outbox_core.extras import needs_extra
from outbox_core.observers.prometheus.metrics import Metrics

with needs_extra("prometheus", feature="Prometheus metrics"):
    from prometheus_client import CollectorRegistry, Counter

if TYPE_CHECKING:
    from outbox_core.meta import Meta
    from outbox_core.observer import Event
    from outbox_core.observers.prometheus.histogram import BatchHistogram
    from outbox_core.status import TableStatus

OTHER: Final = "other"
"""The topic label of messages whose topic came after ``max_topics`` others."""


class PrometheusObserver:
    """Keeps the metrics of a registry up to date: give it to `Outbox` and `Relay` as one of their observers.

    Any number of observers, outboxes and relays may share a registry, and nothing is made outside it. Labels are table,
    topic, result and destination, never tenants or messages. The first ``max_topics`` topics of a table have a label of
    their own; what comes after, as from an application that puts identifiers into topics, is counted as ``other``.
    """

    def __init__(self, registry: CollectorRegistry, *, max_topics: int = 500) -> None:
        given: object = registry
        if not isinstance(given, CollectorRegistry):
            raise ConfigError(
                f"registry must be a prometheus_client.CollectorRegistry, got {type(given).__name__};"
                " prometheus_client.REGISTRY is the default one"
            )
        if max_topics < 1:
            raise ConfigError(f"max_topics must be greater than 0, got {max_topics!r}")
        self._metrics = Metrics.of(registry)
        self._max_topics = max_topics
        self._topics: dict[str, set[str]] = {}
        self._delivered: dict[tuple[str, str], tuple[Counter, BatchHistogram, BatchHistogram]] = {}

    def __call__(self, event: Event, /) -> None:
        metrics, table = self._metrics, str(event.table)
        match event:
            case events.Dispatched():
                self._dispatched(table, event.messages, event.seconds)
            case events.Enqueued():
                metrics.enqueued.labels(table, self._topic(table, event.topic)).inc()
            case events.Published():
                metrics.batch_size.labels(table, "publish").observe(len(event.messages))
            case events.Claimed():
                metrics.batch_size.labels(table, "claim").observe(event.rows)
                metrics.claim_seconds.labels(table).observe(event.seconds)
            case events.Failed():
                self._ended(table, event.message, "failed" if event.charged else "unavailable", event.seconds)
                if event.charged:
                    metrics.retries.labels(table, self._topic(table, event.message.topic)).inc()
            case events.Dead():
                self._ended(table, event.message, "dead", event.seconds)
                metrics.dead.labels(table, self._topic(table, event.message.topic)).inc()
            case events.Released():
                metrics.released.labels(table).inc(event.rows)
            case events.LeaseLost():
                metrics.lost_leases.labels(table, event.write).inc()
            case events.Measured():
                self._measured(table, event.status)
            case events.Reconnecting():
                metrics.reconnects.labels(table).inc()
            case events.Cleaned():
                metrics.cleaned.labels(table, "published").inc(event.published)
                metrics.cleaned.labels(table, "dead").inc(event.dead)
            case events.Replayed():
                metrics.replayed.labels(table).inc(event.rows)
            case events.Discarded():
                metrics.discarded.labels(table).inc(event.rows)
            case events.BreakerOpened():
                metrics.breaker_open.labels(event.destination).set(1)
                metrics.breaker_openings.labels(event.destination).inc()
            case events.BreakerClosed():
                metrics.breaker_open.labels(event.destination).set(0)
            case events.LeaderGained():
                metrics.leader.labels(table).set(1)
            case events.LeaderLost() | events.Stopped():
                metrics.leader.labels(table).set(0)
            case _:
                pass

    def _dispatched(self, table: str, messages: Sequence[Meta], seconds: Sequence[float]) -> None:
        now = time.time()
        took: dict[str, list[float]] = {}
        waited: dict[str, list[float]] = {}
        for message, duration in zip(messages, seconds, strict=True):
            topic = message.topic
            if topic in took:
                took[topic].append(duration)
                waited[topic].append(now - message.created_at.timestamp())
            else:
                took[topic] = [duration]
                waited[topic] = [now - message.created_at.timestamp()]
        for topic, durations in took.items():
            dispatched, latency, delivery = self._delivered.get((table, topic)) or self._deliveries(
                table, topic
            )
            dispatched.inc(len(durations))
            latency.observe_many(durations)
            # Two clocks that differ must not make a sum go down.
            delivery.observe_many([max(0.0, delay) for delay in waited[topic]])

    def _deliveries(self, table: str, topic: str) -> tuple[Counter, BatchHistogram, BatchHistogram]:
        """The metrics of a delivery, found once: looking them up costs more than counting."""
        label, metrics = self._topic(table, topic), self._metrics
        found = (
            metrics.dispatched.labels(table, label, "ok"),
            metrics.dispatch_latency.labels(table, label, "ok"),
            metrics.delivery_latency.labels(table, label),
        )
        if label == topic:
            self._delivered[table, topic] = found
        return found

    def _ended(self, table: str, message: Meta, result: str, seconds: float) -> None:
        label = self._topic(table, message.topic)
        self._metrics.dispatched.labels(table, label, result).inc()
        if seconds > 0:  # else it never reached the dispatcher
            self._metrics.dispatch_latency.labels(table, label, result).observe(seconds)

    def _measured(self, table: str, status: TableStatus) -> None:
        metrics = self._metrics
        for name, gauge, count in (
            ("pending", metrics.pending, status.pending),
            ("waiting", metrics.waiting, status.waiting),
            ("locked", metrics.locked, status.locked),
            ("dead_rows", metrics.dead_rows, status.dead),
        ):
            gauge.labels(table).set(count.value)
            metrics.capped.labels(table, name).set(not count.exact)
        metrics.oldest_age.labels(table).set(status.oldest_pending_age or 0.0)
        metrics.measured_at.labels(table).set(status.at.timestamp())
        leader = status.leader
        metrics.leader_heartbeat.labels(table).set(math.nan if leader is None else leader.heartbeat_age)
        if leader is not None:
            metrics.leader_term.labels(table).set(leader.term)

    def _topic(self, table: str, topic: str) -> str:
        known = self._topics.setdefault(table, set())
        if topic in known:
            return topic
        if len(known) >= self._max_topics:
            return OTHER
        known.add(topic)
        return topic
