"""Records as a broker hands them over: whoever may publish there wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbox_amqp import from_message
from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.adapter.wire import to_wire
from outbox_core.errors import NotAnOutboxMessage, UnsupportedRecord
from outbox_core.headers import MAX_HEADERS_BYTES
from outbox_core.message import DispatchedMessage, Message
from outbox_core.testing.contracts.samples import sample
from outbox_kafka import from_record
from outbox_kafka.rendering import DIALECT as KAFKA
from outbox_nats import from_msg
from outbox_nats.rendering import DIALECT as NATS
from tests.fuzz.hostile import assert_brief, fuzzed, scalars, spoilt, texts, values

MESSAGE = sample(
    "shop.order.placed.v1",
    b'{"a": 1}',
    key="№ 7",
    headers={"x-city": "Zürich"},
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    tracestate="a=1",
)
FORMS = [
    to_wire(MESSAGE, events, dialect)
    for events in (None, CloudEvents("binary"), CloudEvents("structured"))
    for dialect in (KAFKA, NATS)
]
ADDED = re.compile(
    r"x-(death|delivery-count|acquired-count|received-from|stream-offset|(first|last)-death-\w+)"
)
"""What RabbitMQ adds on the way: those who read from it are not shown it."""
NAMES = sorted(
    {name for form in FORMS for name in form.headers} | {"Event-Id", "TOPIC", "x-death", "Nats-Sequence"}
)
bytes_ = st.one_of(
    st.binary(max_size=60), st.sampled_from([b"", b"\xff\xfe", b"\0", b"[" * 100_000, b"9" * 5000])
)


@st.composite
def headers_of(draw: st.DrawFn) -> dict[str, Any]:
    """Those of a good message with some taken away, spoilt, of another type or added."""
    headers: dict[str, Any] = dict(draw(st.sampled_from(FORMS)).headers)
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.one_of(st.sampled_from(NAMES), spoilt(NAMES)))
        kind = draw(st.sampled_from(["gone", "spoilt", "other", "bytes"]))
        if kind == "gone":
            headers.pop(name, None)
        elif kind == "spoilt":
            headers[name] = draw(spoilt(str(headers.get(name, "x"))))
        else:
            headers[name] = draw(values if kind == "other" else bytes_)
    return headers


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """The JSON of a structured CloudEvent, spoilt as text or in its members."""
    text = FORMS[-1].body.decode()
    if draw(st.booleans()):
        return draw(spoilt(text)).encode("utf-8", "surrogatepass")
    members = json.loads(text)
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.one_of(st.sampled_from([*members, "data_base64"]), texts))
        members[name] = draw(st.one_of(values, spoilt(str(members.get(name, "x")))))
    return json.dumps(members).encode()


bodies = st.one_of(bytes_, documents(), st.just(b'{"a": 1}'))


def read(headers: Mapping[str, Any], body: Any) -> list[DispatchedMessage]:
    """What each adapter makes of it, if it takes it for a message."""
    found: list[DispatchedMessage] = []
    for reader, record in (
        (from_record, SimpleNamespace(headers=_as_pairs(headers), value=body)),
        (from_msg, SimpleNamespace(headers=headers, data=body)),
        (from_message, SimpleNamespace(headers=headers, body=body, content_type=None)),
    ):
        try:
            found.append(reader(record))  # type: ignore[operator]
        except NotAnOutboxMessage as refused:
            assert_brief(refused)
    return found


def _as_pairs(headers: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        (name, value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
        for name, value in headers.items()
    ]


def _for_everybody(headers: Mapping[str, str]) -> bool:
    """Whether they can be sent together, which is a limit of those who enqueue, and none is RabbitMQ's own."""
    names = {name.lower() for name in headers}
    size = sum(len(name) + len(value.encode()) for name, value in headers.items())
    return size <= MAX_HEADERS_BYTES and len(names) == len(headers) and not any(map(ADDED.fullmatch, names))


@fuzzed
@given(headers_of(), bodies)
@example({**FORMS[0].headers, "x-large": "x" * 1_000_000}, b"")
@example({**FORMS[0].headers, "created-at": "0001-01-01T00:00:00+23:59"}, b"")
@example({**FORMS[0].headers, "content-type": "application/cloudevents+" + "x" * 100_000}, b"")
@example({**FORMS[0].headers, "x-number": 10**5000}, b"")
@example({**FORMS[0].headers, "key": "a\r\nb"}, b"")
@example({**FORMS[0].headers, "key": ""}, b"")
@example({**FORMS[0].headers, "key": "k" * 10_000_000}, b"")
@example({**FORMS[0].headers, "sequence": "9999999999999999999"}, b"")
@example(
    {**FORMS[0].headers, "x-note": "ok\r\nSet-Cookie: admin=1", "x\r\ny": "\x1b[2J", "y" * 129: "z"}, b""
)
@example({**FORMS[0].headers, "event-id": "0x" + "1" * 30}, b"")
@example(FORMS[-1].headers, FORMS[-1].body.replace(b"\xe2\x84\x96 7", b"\\ud800"))
def test_a_record_is_a_message_that_can_be_sent_on_or_is_refused(
    headers: dict[str, Any], body: bytes
) -> None:
    for message in read(headers, body):
        meta = message.meta
        assert isinstance(message.payload, bytes)
        assert min(meta.sequence, meta.attempts, meta.replays) >= 0
        assert max(meta.sequence, meta.attempts, meta.replays) < 2**63
        for name, value in meta.headers.items():
            Message(meta.topic, 1, key=meta.key, headers={name: value[:1024].strip()})
        if _for_everybody(meta.headers):
            assert read(to_wire(message, None, NATS).headers, message.payload) == [message] * 3


@fuzzed
@given(
    st.lists(st.tuples(st.one_of(st.sampled_from(NAMES), texts), st.one_of(st.none(), bytes_)), max_size=12)
)
def test_kafka_may_have_a_header_twice_or_without_a_value(pairs: list[tuple[str, bytes | None]]) -> None:
    for given_headers in (pairs, [*_as_pairs(FORMS[0].headers), *pairs]):
        try:
            message = from_record(SimpleNamespace(headers=given_headers, value=b"{}"))  # type: ignore[arg-type]
        except NotAnOutboxMessage:
            continue
        assert message.payload == b"{}"


@fuzzed
@given(
    st.one_of(
        values, bytes_, st.builds(SimpleNamespace, headers=values, value=values, data=values, body=values)
    )
)
def test_anything_else_is_no_record(given_value: object) -> None:
    for reader in (from_record, from_msg, from_message):
        with pytest.raises((UnsupportedRecord, NotAnOutboxMessage)):
            reader(given_value)  # type: ignore[operator]


@fuzzed
@given(st.dictionaries(st.one_of(texts, st.sampled_from(NAMES)), scalars, max_size=6), bodies)
def test_a_structured_event_is_read_or_refused(members: dict[str, Any], body: bytes) -> None:
    read({"content-type": "application/cloudevents+json", **members}, body)
    read({"Content-Type": "application/cloudevents+json; charset=utf-8"}, json.dumps(members).encode())
