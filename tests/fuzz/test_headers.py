"""Headers, keys and traces of the application's own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from outbox_core.encoding import encode_json
from outbox_core.errors import EncodingError, InvalidHeader, InvalidKey, MessageError
from outbox_core.headers import MAX_HEADERS, MAX_HEADERS_BYTES, WIRE_HEADERS, Headers
from outbox_core.message import MAX_KEY_BYTES, Message
from outbox_core.trace import accept_trace, valid_traceparent, valid_tracestate
from tests.fuzz.hostile import SECRET, assert_brief, assert_secretive, fuzzed, scalars, spoilt, texts, values

NAMES = ("x-city", "X-City", "event-id", "Nats-Rollup", "ce-id", "bcc", "content-type", "x" * 128)
TRACEPARENTS = (
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
)
TRACESTATES = ("a=1", "a=1,b=2", "0a@b=c, d=e", ",".join(f"k{n}=v" for n in range(32)))
TIMES = (
    datetime(1, 1, 1),  # noqa: DTZ001
    datetime(9999, 12, 31),  # noqa: DTZ001
    datetime.fromisoformat("0001-01-01T00:00:00+23:59"),
)


@fuzzed
@given(
    st.one_of(
        values,
        st.dictionaries(
            st.one_of(scalars, spoilt(NAMES)), st.one_of(scalars, spoilt(f"plain {SECRET}")), max_size=4
        ),
    )
)
@example({f"x-{n}": "" for n in range(65)})
@example({"x-a": "é" * 8192, "x-b": "1" * 20})
@example({"x-a": "1", "X-A": "2"})
def test_headers_are_safe_on_every_broker_or_refused(value: Any) -> None:
    try:
        headers = Headers(value)
    except InvalidHeader as refused:
        assert_brief(refused)
        assert_secretive(refused)
        return
    assert dict(headers) == value
    assert len(headers) <= MAX_HEADERS
    assert sum(len(f"{name}{text}".encode()) for name, text in headers.items()) <= MAX_HEADERS_BYTES
    assert len({name.lower() for name in headers} - WIRE_HEADERS) == len(headers)
    for text in (*headers, *headers.values()):
        assert text == text.strip()
        assert len(f"{text}x".splitlines()) == 1
        assert not set(text) & {chr(code) for code in (*range(32), 127)}
    assert_secretive(repr(headers))


@fuzzed
@given(st.one_of(values, texts))
@example("é" * 513)
def test_a_key_is_one_short_line_or_refused(value: Any) -> None:
    try:
        message = Message("a.b", None, key=value)
    except InvalidKey as refused:
        assert_brief(refused)
        return
    if message.key is not None:
        assert 0 < len(message.key.encode()) <= MAX_KEY_BYTES
        assert message.key == message.key.strip() == message.key.splitlines()[0]


@fuzzed
@given(st.one_of(values, spoilt(TRACEPARENTS)), st.one_of(values, spoilt(TRACESTATES)))
@example(TRACEPARENTS[0], "a=1," * 200)
@example("00-" + "0" * 100_000, ",=" * 50_000)
def test_a_trace_is_valid_or_dropped(traceparent: object, tracestate: object) -> None:
    kept, state = accept_trace(traceparent, tracestate)
    message = Message("a.b", None, traceparent=traceparent, tracestate=tracestate)  # type: ignore[arg-type]

    assert (message.traceparent, message.tracestate) == (kept, state)
    assert kept is None or (kept == traceparent and valid_traceparent(kept) and kept.isascii())
    assert state is None or (kept is not None and valid_tracestate(state) and len(state) <= 512)


@fuzzed
@given(st.dictionaries(
    st.sampled_from(["topic", "payload", "body", "content_type", "tenant_id", "event_id", "available_at", "delay"]),
    st.one_of(values, st.binary(max_size=9), st.uuids(), st.datetimes(), st.timedeltas(), st.sampled_from(TIMES),
        spoilt("text/plain; charset=utf-8")),
))  # fmt: skip
def test_a_message_is_made_or_refused_by_an_error_about_messages(fields: dict[str, Any]) -> None:
    try:
        message = Message(**{"topic": "a.b", **fields})
    except MessageError as refused:
        assert_brief(refused, 1000)
        return
    repr(message)
    try:
        message.json_text()
    except EncodingError as refused:
        assert_brief(refused, 1000)


@fuzzed
@given(values)
@example("\ud800")
@example({"a\0b": SECRET})
def test_a_payload_is_encoded_or_refused_without_its_content(value: Any) -> None:
    try:
        encode_json([value, SECRET])
    except EncodingError as refused:
        assert_secretive(refused)


@fuzzed
@given(st.one_of(spoilt(['{"a": [1.5, null, "b"]}', "[" * 300, '"\\u0000"', "1e400000", "NaN"]), texts))
@example("[" * 100_000)
@example("9" * 200_000)
def test_text_that_is_already_json_is_kept_or_refused(text: str) -> None:
    try:
        message = Message.from_json("a.b", text)
    except EncodingError as refused:
        assert_brief(refused, 1000)
        return
    assert message.json_text() == text
    text.encode()
