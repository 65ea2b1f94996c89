"""Prometheus metrics of outboxes and relays, in a registry of the application's own.

registry = CollectorRegistry()
observer = PrometheusObserver(registry)
Outbox("orders_outbox", observers=[observer])
Relay(dsn, table="orders_outbox", dispatcher=publish, observers=[observer])
"""

from outbox_core.observers.prometheus.observer import PrometheusObserver

__all__ = ["PrometheusObserver"]
