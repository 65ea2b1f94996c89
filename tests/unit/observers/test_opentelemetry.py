"""Spans of deliveries: their kind, names, times, attributes, parents and links."""

from __future__ import annotations

import time

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from outbox_core import observer as events
from outbox_core.observers.opentelemetry import OpenTelemetryObserver
from tests.kit.samples import EVENT_ID, TABLE, TENANT, TOPIC, every_event, meta

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
SPAN_ID = 0xB7AD6B7169203331


class Tracing:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()


@pytest.fixture
def tracing() -> Tracing:
    return Tracing()


def test_a_delivery_is_a_producer_span_in_the_trace_of_its_enqueue(tracing: Tracing) -> None:
    observe = OpenTelemetryObserver(tracing.provider, system="kafka")
    before = time.time_ns()
    observe(events.Dispatched(TABLE, [meta()], [0.25]))
    (span,) = tracing.spans
    assert (span.name, span.kind) == (f"send {TOPIC}", SpanKind.PRODUCER)
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (TRACE_ID, SPAN_ID)
    (link,) = span.links
    assert (link.context.trace_id, link.context.span_id) == (TRACE_ID, SPAN_ID)
    assert link.context.trace_state.get("vendor") == "CANARY-STATE"
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": TOPIC,
        "messaging.message.id": str(EVENT_ID),
        "outbox.table": "shop.orders_outbox",
        "outbox.sequence": 7,
        "outbox.attempts": 2,
    }
    assert span.status.status_code is StatusCode.UNSET
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == 250_000_000
    assert before <= span.end_time <= time.time_ns()


def test_on_request_a_delivery_begins_a_trace_of_its_own_and_keeps_the_link(tracing: Tracing) -> None:
    OpenTelemetryObserver(tracing.provider, same_trace=False)(events.Dispatched(TABLE, [meta()], [0.1]))
    (span,) = tracing.spans
    assert span.parent is None
    assert span.context.trace_id != TRACE_ID
    assert [link.context.trace_id for link in span.links] == [TRACE_ID]
    assert "messaging.system" not in (span.attributes or {})


def test_whatever_span_is_current_in_the_relay_is_not_the_parent(tracing: Tracing) -> None:
    observe = OpenTelemetryObserver(tracing.provider)
    with tracing.provider.get_tracer("app").start_as_current_span("something else"):
        observe(events.Dispatched(TABLE, [meta(traceparent=None)], [0.1]))
    span = tracing.spans[0]
    assert (span.name, span.parent, span.links) == (f"send {TOPIC}", None, ())


def test_failures_are_errors_with_the_code_as_their_type(tracing: Tracing) -> None:
    observe = OpenTelemetryObserver(tracing.provider)
    observe(events.Failed(TABLE, meta(), "TX.TIMEOUT not acknowledged", 1.0, True, 0.5))
    observe(events.Dead(TABLE, meta(), "PROVIDER.PERMANENT refused", 0.5))
    assert [(span.attributes or {})["error.type"] for span in tracing.spans] == [
        "TX.TIMEOUT",
        "PROVIDER.PERMANENT",
    ]
    assert all(span.status.status_code is StatusCode.ERROR for span in tracing.spans)
    assert tracing.spans[0].status.description == "TX.TIMEOUT not acknowledged"


def test_a_trace_that_was_not_sampled_makes_no_spans(tracing: Tracing) -> None:
    unsampled = meta(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
    OpenTelemetryObserver(tracing.provider)(events.Dispatched(TABLE, [unsampled], [0.1]))
    assert tracing.spans == ()


def test_a_malformed_trace_is_no_parent(tracing: Tracing) -> None:
    OpenTelemetryObserver(tracing.provider)(events.Dispatched(TABLE, [meta(traceparent="nonsense")], [0.1]))
    (span,) = tracing.spans
    assert (span.parent, span.links) == (None, ())


def test_only_deliveries_have_spans_and_none_says_too_much(tracing: Tracing) -> None:
    observe = OpenTelemetryObserver(tracing.provider)
    for event in every_event():
        observe(event)
    assert len(tracing.spans) == 4
    text = "".join(
        f"{span.name} {dict(span.attributes or {})} {span.status.description}" for span in tracing.spans
    )
    assert "CANARY" not in text
    assert str(TENANT) not in text


def test_without_a_provider_the_global_one_is_asked() -> None:
    OpenTelemetryObserver()(events.Dispatched(TABLE, [meta()], [0.1]))
