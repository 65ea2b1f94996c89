"""Spans of deliveries, as OpenTelemetry's conventions for messaging have them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from outbox_core import observer as events
from outbox_core.extras import needs_extra

with needs_extra("opentelemetry", feature="spans of deliveries"):
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        Link,
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer_provider,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from outbox_core.meta import Meta
    from outbox_core.observer import Event

_NANOSECONDS: Final = 1_000_000_000
_NOWHERE: Final = Context()
_FROM_W3C: Final = TraceContextTextMapPropagator()


class OpenTelemetryObserver:
    """A span of kind PRODUCER for each delivery, successful or not, made when its outcome is known and with its times.

    It belongs to the trace in which the message was enqueued, as a child of the span that was current then, and is
    linked to it; with ``same_trace=False`` it begins a trace of its own and only the link remains. A message enqueued
    outside a trace gets a span without parent. The broker's headers carry the ``traceparent`` of the enqueue unchanged,
    whatever is sampled or configured here, so a consumer's span is a child of the enqueue's as well.

    ``system`` is the ``messaging.system`` of the convention, such as ``kafka``, ``nats`` or ``rabbitmq``; give it when
    the relay has one destination. Attributes are topic, event id, table, sequence and attempts; never tenants, keys,
    headers or payloads. The provider's sampler decides which spans are kept.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        system: str | None = None,
        same_trace: bool = True,
    ) -> None:
        provider = get_tracer_provider() if tracer_provider is None else tracer_provider
        self._tracer = provider.get_tracer("outbox_core")
        self._system = system
        self._same_trace = same_trace

    def __call__(self, event: Event, /) -> None:
        match event:
            case events.Dispatched():
                for message, seconds in zip(event.messages, event.seconds, strict=True):
                    self._span(message, seconds, None)
            case events.Failed() | events.Dead():
                self._span(event.message, event.seconds, event.error)
            case _:
                pass

    def _span(self, message: Meta, seconds: float, error: str | None) -> None:
        end = time.time_ns()
        origin, links = _origin(message)
        span = self._tracer.start_span(
            f"send {message.topic}",
            context=origin if self._same_trace else _NOWHERE,
            kind=SpanKind.PRODUCER,
            links=links,
            start_time=end - round(seconds * _NANOSECONDS),
        )
        if span.is_recording():
            span.set_attributes(self._attributes(message))
            if error is not None:
                span.set_attribute("error.type", error.partition(" ")[0])
                span.set_status(Status(StatusCode.ERROR, error))
        span.end(end)

    def _attributes(self, message: Meta) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "messaging.operation.type": "send",
            "messaging.operation.name": "send",
            "messaging.destination.name": message.topic,
            "messaging.message.id": str(message.event_id),
            "outbox.table": message.table,
            "outbox.sequence": message.sequence,
            "outbox.attempts": message.attempts,
        }
        if self._system is not None:
            attributes["messaging.system"] = self._system
        return attributes


def _origin(message: Meta) -> tuple[Context, list[Link]]:
    """The context in which a message was enqueued, and a link to it."""
    if message.traceparent is None:
        return _NOWHERE, []
    carrier = {"traceparent": message.traceparent}
    if message.tracestate is not None:
        carrier["tracestate"] = message.tracestate
    origin = _FROM_W3C.extract(carrier, _NOWHERE)
    span_context = get_current_span(origin).get_span_context()
    return (origin, [Link(span_context)]) if span_context.is_valid else (_NOWHERE, [])
