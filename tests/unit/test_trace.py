from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from outbox_core.trace import accept_trace, current_trace, dropped_traces, valid_traceparent, valid_tracestate

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    "value",
    [
        TRACEPARENT,
        TRACEPARENT[:-2] + "ff",
        "01" + TRACEPARENT[2:],
        "cc" + TRACEPARENT[2:] + "-what-comes-later",
        "cc" + TRACEPARENT[2:] + "-",
    ],
)
def test_a_traceparent_by_the_standard_is_valid(value: str) -> None:
    assert valid_traceparent(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "garbage",
        TRACEPARENT.upper(),
        TRACEPARENT + "-more",
        TRACEPARENT + "-",
        TRACEPARENT + "\n",
        " " + TRACEPARENT,
        TRACEPARENT[:-1],
        "ff" + TRACEPARENT[2:],
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "cc" + TRACEPARENT[2:] + "more",
        "cc" + TRACEPARENT[2:] + "-with space",
        "cc" + TRACEPARENT[2:] + "-" + "x" * 1_000,
        None,
        b"00",
        7,
    ],
)
def test_anything_else_is_no_traceparent(value: object) -> None:
    assert not valid_traceparent(value)


@pytest.mark.parametrize(
    "value",
    [
        "congo=t61rcWkgMzE",
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        "a=1, b=2",
        "a=1,,b=2",
        "fw529a3039@dt=FfffFf",
        ",".join(f"k{number}=v" for number in range(32)),
        "a=" + "x" * 254,
    ],
)
def test_a_tracestate_by_the_standard_is_valid(value: str) -> None:
    assert valid_tracestate(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        ",",
        "a",
        "a=",
        "=1",
        "A=1",
        "a=1,a=2",
        "a=1=2",
        "a=é",
        "a=1\r\nx: y",
        "a=1\tb",
        " a=1",
        "a=1 ",
        ",".join(f"k{number}=v" for number in range(33)),
        "a=" + "x" * 257,
        ",".join(f"k{number}={'x' * 100}" for number in range(5)),
        None,
        7,
    ],
)
def test_anything_else_is_no_tracestate(value: object) -> None:
    assert not valid_tracestate(value)


@pytest.mark.parametrize(
    ("given", "kept", "dropped"),
    [
        ((None, None), (None, None), 0),
        ((TRACEPARENT, None), (TRACEPARENT, None), 0),
        ((TRACEPARENT, ""), (TRACEPARENT, None), 0),
        ((TRACEPARENT, "a=1"), (TRACEPARENT, "a=1"), 0),
        ((TRACEPARENT, "garbage"), (TRACEPARENT, None), 1),
        (("garbage", "a=1"), (None, None), 1),
        ((7, None), (None, None), 1),
        ((None, "a=1"), (None, None), 1),
    ],
)
def test_what_is_malformed_is_dropped_and_counted(
    given: tuple[object, object], kept: tuple[str | None, str | None], dropped: int
) -> None:
    before = dropped_traces()

    assert accept_trace(*given) == kept
    assert dropped_traces() - before == dropped


def test_a_drop_is_logged_without_the_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="outbox_core.trace"):
        accept_trace("canary\r\nvalue", None)

    assert caplog.messages == ["dropped a malformed traceparent"]


def test_the_current_span_is_found() -> None:
    span = NonRecordingSpan(
        SpanContext(
            trace_id=0x0AF7651916CD43DD8448EB211C80319C,
            span_id=0xB7AD6B7169203331,
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
            trace_state=TraceState([("congo", "t61rcWkgMzE")]),
        )
    )
    token = context.attach(trace.set_span_in_context(span))
    try:
        assert current_trace() == (TRACEPARENT, "congo=t61rcWkgMzE")
    finally:
        context.detach(token)


def test_without_a_current_span_there_is_no_trace() -> None:
    assert current_trace() == (None, None)


def test_opentelemetry_is_not_imported_to_look_for_a_span() -> None:
    program = (
        "import sys\n"
        "from outbox_core.trace import current_trace\n"
        "import outbox_core.message, outbox_core.headers\n"
        "assert current_trace() == (None, None)\n"
        "assert not {'opentelemetry', 'pydantic'} & {name.partition('.')[0] for name in sys.modules}\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
