"""A trace from enqueue through the row to the dispatcher, the broker's headers and the span of the delivery."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from outbox_core.errors import PermanentError
from outbox_core.headers import to_headers
from outbox_core.meta import DispatchedMessage
from outbox_core.observers.opentelemetry import OpenTelemetryObserver
from tests.integration.relay.bench import TOPIC, Bench

pytestmark = pytest.mark.asyncio


async def test_the_trace_of_the_enqueue_reaches_headers_and_span(bench: Bench) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sent: list[DispatchedMessage] = []

    async def publish(message: DispatchedMessage) -> None:
        sent.append(message)
        if message.json() == "dies":
            raise PermanentError("refused")

    with provider.get_tracer("app").start_as_current_span("place order") as span:
        origin = span.get_span_context()
        await bench.enqueue("arrives", "dies")
    async with bench.relay(publish, observers=[OpenTelemetryObserver(provider, system="kafka")]):
        await bench.settled()
    traceparent = f"00-{origin.trace_id:032x}-{origin.span_id:016x}-{origin.trace_flags:02x}"
    for message in sent:
        assert message.meta.traceparent == traceparent
        assert to_headers(message)["traceparent"] == traceparent
    spans = [each for each in exporter.get_finished_spans() if each.name == f"send {TOPIC}"]
    assert len(spans) == 2
    for each in spans:
        assert each.kind is trace.SpanKind.PRODUCER
        assert each.context.trace_id == origin.trace_id
        assert each.parent is not None
        assert each.parent.span_id == origin.span_id
        assert [link.context.span_id for link in each.links] == [origin.span_id]
    errors = {(each.attributes or {}).get("error.type") for each in spans}
    assert errors == {None, "PROVIDER.PERMANENT"}
