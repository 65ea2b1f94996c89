"""Nothing that is told anywhere, at any level, has a payload, a header, a connection string or a secret in it."""

from __future__ import annotations

import io
import json
import logging
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from outbox_core import Outbox, Relay
from outbox_core.errors import BrokerUnavailable, PermanentError, RetryAfter
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.monitor import MonitorSettings, read_status
from outbox_core.observer import Event, Observer
from outbox_core.observers.json_lines import JsonLinesObserver
from outbox_core.observers.logging import LoggingObserver
from outbox_core.observers.opentelemetry import OpenTelemetryObserver
from outbox_core.observers.prometheus import PrometheusObserver
from tests.integration.relay.bench import TABLE, TOPIC, Bench
from tests.kit.samples import TENANT
from tests.kit.settings import QUICK_POSTGRES

pytestmark = pytest.mark.asyncio
CANARIES = ("CANARY-PAYLOAD", "CANARY-HEADER", "CANARY-PASSWORD", "CANARY-TOKEN")


class Careless:
    """A dispatcher whose errors quote everything it knows."""

    def __init__(self) -> None:
        self.away = True

    async def dispatch(self, message: DispatchedMessage, /) -> str | None:
        does = message.json()["does"]
        known = (
            f"{message.payload.decode()} postgresql://app:CANARY-PASSWORD@db/shop password=CANARY-PASSWORD"
            " Authorization: Bearer CANARY-TOKEN sasl_plain_password='CANARY-PASSWORD'"
        )
        if does == "dies":
            raise PermanentError(known)
        if does == "hides" and self.away:
            self.away = False
            raise BrokerUnavailable(known)
        if does == "waits" and message.meta.attempts == 1:
            raise RetryAfter(timedelta(0), known)
        if does == "fails" and message.meta.attempts == 1:
            raise ValueError(known) from OSError(known)
        if does == "returns" and message.meta.attempts == 1:
            return known
        if does == "groups" and message.meta.attempts == 1:
            raise ExceptionGroup(known, [ValueError(known)])
        return None


async def test_no_canary_gets_out(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    registry, stream, exporter = CollectorRegistry(), io.StringIO(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    observers: list[Observer] = [
        LoggingObserver(tenants="hash"),
        PrometheusObserver(registry),
        JsonLinesObserver(stream, only=[Event], tenants="hash"),
        OpenTelemetryObserver(provider),
        bench.heard,
    ]
    outbox = Outbox(TABLE, observers=observers)
    kinds = ("arrives", "dies", "hides", "waits", "fails", "returns", "groups")
    async with bench.connection.transaction():
        for does in kinds:
            await outbox.enqueue(
                bench.connection,
                Message(
                    TOPIC,
                    {"does": does, "card": "CANARY-PAYLOAD"},
                    headers={"x-auth": "CANARY-HEADER"},
                    key=does,
                    tenant_id=TENANT,
                ),
            )
    parts = urlsplit(bench.dsn)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username or "postgres"
    password = parts.password or "CANARY-PASSWORD"
    dsn = urlunsplit(parts._replace(netloc=f"{user}:{password}@{host}"))
    relay = Relay(
        dsn,
        table=TABLE,
        dispatcher=Careless(),  # type: ignore[arg-type]
        observers=observers,
        monitor=MonitorSettings(interval=0.05),
        **QUICK_POSTGRES,
    )
    async with relay:
        assert await bench.settled() == {"published": 6, "dead": 1}
        health = json.dumps(relay.health().as_json())
    status = repr(await read_status(dsn, TABLE))
    told = {
        "the log": "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records),
        "the formatted log": caplog.text,
        "the metrics": generate_latest(registry).decode(),
        "the audit": stream.getvalue(),
        "the spans": "".join(span.to_json() for span in exporter.get_finished_spans()),
        "the events": repr(bench.heard.events),
        "the health": health,
        "the status": status,
        "last_error": "".join(row["last_error"] or "" for row in await bench.rows()),
        "the relay": f"{relay!r} {vars(relay)}",
    }
    for where, text in told.items():
        assert text, where
        for canary in (*CANARIES, *([parts.password] if parts.password else [])):
            assert canary not in text, where
    for where in ("the log", "the metrics", "the audit", "the spans"):
        assert str(TENANT) not in told[where], where
    assert "dispatched" in told["the audit"]
    assert "message is dead" in told["the log"]
