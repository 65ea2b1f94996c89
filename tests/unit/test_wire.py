"""The forms of a message on the wire, plain and CloudEvents, written and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_core.adapter.cloud_events import CloudEvents, from_document, to_document
from outbox_core.adapter.wire import Dialect, from_wire, to_wire
from outbox_core.errors import NotAnOutboxMessage, PermanentError
from outbox_core.message import DispatchedMessage
from outbox_core.testing.contracts.samples import sample

FORMS = [None, CloudEvents("binary"), CloudEvents("structured"), CloudEvents("binary", "urn:a:b")]
DIALECTS = [Dialect("ce_"), Dialect("ce-"), Dialect("ce-", percent_encoded=True)]
MESSAGE = sample(
    "shop.order.placed.v1",
    b'{"a": 1.0}',
    key='№ 7 "100%"',
    headers={"X-City": "Zürich", "x-empty": ""},
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    tracestate="a=1",
)

payloads = st.one_of(
    st.binary(max_size=60),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3),
    ).map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [b" {}", b"{}\n", b'{"a": 1, "a": 2}', b"1e400", b"NaN", b"[" * 100_000, b"1" * 5_000, b'"\\ud800"']
    ),
)


@settings(deadline=None)
@given(
    payloads, st.sampled_from(FORMS), st.sampled_from(DIALECTS), st.sampled_from(["application/json", "x/y"])
)
def test_every_payload_survives_every_form(
    payload: bytes, form: CloudEvents | None, dialect: Dialect, content_type: str
) -> None:
    message = replace(MESSAGE, payload=payload, content_type=content_type)
    wire = to_wire(message, form, dialect)

    assert from_wire(wire.headers, wire.body, dialect) == message
    assert wire.headers["event-id"] == str(message.meta.event_id)
    if form is not None and form.mode == "structured":
        json.loads(wire.body, parse_int=str)


@pytest.mark.parametrize("form", FORMS)
def test_headers_from_other_sources_become_user_headers(form: CloudEvents | None) -> None:
    wire = to_wire(MESSAGE, form, DIALECTS[0])
    back = from_wire({**wire.headers, "b3": b"1", "Nats-Stream": "S"}, wire.body, DIALECTS[0])

    assert back.meta.headers == {**MESSAGE.meta.headers, "b3": "1"}


def test_the_names_of_another_binding_are_understood() -> None:
    wire = to_wire(MESSAGE, CloudEvents(), Dialect("cloudEvents:"))

    assert from_wire(wire.headers, wire.body, DIALECTS[0]) == MESSAGE


def test_a_document_with_reordered_members_keeps_its_payload() -> None:
    wire = to_wire(MESSAGE, CloudEvents("structured"), DIALECTS[0])
    members = json.loads(wire.body)
    moved = '{ "data" : {"a": 1.0} , ' + json.dumps({k: v for k, v in members.items() if k != "data"})[1:]

    assert from_wire(wire.headers, moved.encode(), DIALECTS[0]) == MESSAGE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{",
        b"{1:2}",
        b'{"a" 1}',
        b'{"a": 1 "b": 2}',
        b'{"a": nan}',
        b"\xff",
        b"{,}",
        b'{"a": 1,}',
        b'{"a": 1} x',
        b"{} {}",
    ],
)
def test_a_body_that_is_not_a_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(NotAnOutboxMessage, match="is not a JSON object"):
        from_document(body)


def test_invalid_base64_is_refused() -> None:
    for value in (b'"*"', b"[]"):
        with pytest.raises(NotAnOutboxMessage, match="data_base64 is not base64"):
            from_document(b'{"data_base64": ' + value + b"}")


def test_a_document_without_data_has_an_empty_payload() -> None:
    assert from_document(b'{"id": "1", "n": 1, "x": null}') == ({"id": "1", "n": "1"}, b"")
    assert from_document(to_document({"id": "1"}, b"")) == ({"id": "1"}, b"")


@pytest.mark.parametrize(
    ("meta", "text"),
    [
        ({"key": "a\nb"}, "the header 'key' has the control character U+000A"),
        ({"key": " a"}, "the header 'key' has white space around it"),
        ({"topic": "a\r\nb"}, "the header 'topic' has the control character U+000D"),
        ({"headers": {"a": "b\0"}}, "invalid header 'a'"),
        ({"headers": {"Nats-Rollup": "all"}}, "invalid header 'Nats-Rollup'"),
        ({"headers": {"topic": "b"}}, "invalid header 'topic'"),
    ],
)
@pytest.mark.parametrize("form", FORMS[:3])
def test_a_row_written_by_hand_cannot_smuggle_headers(
    form: CloudEvents | None, meta: dict[str, object], text: str
) -> None:
    changes: dict[Literal["key"], str] = meta  # type: ignore[assignment]
    message: DispatchedMessage = replace(MESSAGE, meta=replace(MESSAGE.meta, **changes))
    with pytest.raises(PermanentError, match=text.replace("+", r"\+")):
        to_wire(message, form, DIALECTS[0])


@pytest.mark.parametrize("form", FORMS[:3])
def test_a_message_that_no_consumer_could_read_is_not_sent(form: CloudEvents | None) -> None:
    with pytest.raises(PermanentError, match="invalid topic 'Orders': 'O' at position 0 is not allowed"):
        to_wire(replace(MESSAGE, meta=replace(MESSAGE.meta, topic="Orders")), form, DIALECTS[0])
    with pytest.raises(PermanentError, match="content type of the message is not a media type"):
        to_wire(replace(MESSAGE, content_type="json"), form, DIALECTS[0])
