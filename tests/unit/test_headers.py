from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_core.errors import InvalidHeader, NotAnOutboxMessage, ProviderError
from outbox_core.headers import (
    ALWAYS_SENT,
    BROKER_NAMES,
    BROKER_PREFIXES,
    MAX_HEADERS,
    MAX_HEADERS_BYTES,
    WIRE_HEADERS,
    Headers,
    from_headers,
    to_headers,
)
from outbox_core.message import DispatchedMessage, Meta
from outbox_core.trace import dropped_traces

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

MESSAGE = DispatchedMessage(
    Meta(
        table="billing.invoices_outbox",
        tenant_id=UUID("7d444840-9dc0-11d1-b245-5ffdce74fad2"),
        topic="billing.invoice.issued.v1",
        event_id=UUID("0190163d-8694-739b-aea5-966c26f8ad91"),
        sequence=42,
        attempts=2,
        replays=1,
        key="invoice 7, é",
        headers={"X-Source": "shop", "x-empty": ""},
        created_at=datetime(2026, 1, 2, 5, 4, 5, 678, tzinfo=timezone(timedelta(hours=2))),
        traceparent=TRACEPARENT,
        tracestate="congo=t61rcWkgMzE",
    ),
    b'{"total": "9.90"}',
    "application/json",
)


def test_these_are_the_headers_on_the_wire() -> None:
    assert to_headers(MESSAGE) == {
        "event-id": "0190163d-8694-739b-aea5-966c26f8ad91",
        "tenant-id": "7d444840-9dc0-11d1-b245-5ffdce74fad2",
        "topic": "billing.invoice.issued.v1",
        "key": "invoice 7, é",
        "sequence": "42",
        "attempts": "2",
        "replays": "1",
        "table": "billing.invoices_outbox",
        "created-at": "2026-01-02T03:04:05.000678Z",
        "traceparent": TRACEPARENT,
        "tracestate": "congo=t61rcWkgMzE",
        "content-type": "application/json",
        "X-Source": "shop",
        "x-empty": "",
    }


def test_what_a_message_does_not_have_is_not_sent() -> None:
    meta = Meta(
        "public.a", UUID(int=0), "a", UUID(int=1), 1, 1, 0, None, {}, datetime(2026, 1, 2, tzinfo=UTC)
    )

    assert set(to_headers(DispatchedMessage(meta, b"", "text/plain"))) == set(ALWAYS_SENT)


def test_a_consumer_gets_back_what_was_dispatched() -> None:
    assert from_headers(to_headers(MESSAGE), MESSAGE.payload) == MESSAGE


names = st.from_regex(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,20}", fullmatch=True).filter(
    lambda name: (
        name.lower() not in WIRE_HEADERS | BROKER_NAMES and not name.lower().startswith(BROKER_PREFIXES)
    )
)
lines = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029"), max_size=20
).map(str.strip)
metas = st.builds(
    Meta,
    table=st.sampled_from(["public.orders_outbox", "a.b"]),
    tenant_id=st.uuids(),
    topic=st.sampled_from(["a", "orders.order.placed.v1"]),
    event_id=st.uuids(),
    sequence=st.integers(1, 2**63 - 1),
    attempts=st.integers(0, 2**31 - 1),
    replays=st.integers(0, 2**31 - 1),
    key=st.none() | lines.filter(bool),
    headers=st.dictionaries(names, lines, max_size=5),
    created_at=st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC)),  # noqa: DTZ001
    traceparent=st.just(TRACEPARENT),
    tracestate=st.none() | st.just("a=1,b=2"),
)


@settings(deadline=None)
@given(metas, st.binary(max_size=50), st.sampled_from(["application/json", "application/avro"]))
def test_every_message_survives_the_round_trip(meta: Meta, payload: bytes, content_type: str) -> None:
    message = DispatchedMessage(meta, payload, content_type)

    assert from_headers(to_headers(message), payload) == message


@settings(deadline=None)
@given(st.dictionaries(names, lines, max_size=5))
def test_headers_by_the_rule_are_taken_as_they_are(values: dict[str, str]) -> None:
    if len({name.lower() for name in values}) == len(values):
        assert Headers(values) == values


def test_names_in_another_case_are_still_ours() -> None:
    changed = {name.title(): value for name, value in to_headers(MESSAGE).items()}
    back = from_headers(changed, MESSAGE.payload)

    assert back.meta.event_id == MESSAGE.meta.event_id
    assert back.meta.headers == {"X-Source": "shop", "X-Empty": ""}


@pytest.mark.parametrize("first", ["topic", "Topic"])
def test_of_two_names_that_differ_in_case_the_one_we_send_counts(first: str) -> None:
    headers = to_headers(MESSAGE)
    del headers["topic"]
    both = {"topic": "the-real.one", "Topic": "another.one"}

    back = from_headers({first: both.pop(first), **both, **headers}, b"")

    assert back.meta.topic == "the-real.one"


def test_foreign_headers_come_back_as_text_and_brokers_own_do_not() -> None:
    foreign = {
        "Nats-Msg-Id": "1",
        "ce-id": "1",
        "CC": "a",
        "x-count": 3,
        "x-raw": b"caf\xc3\xa9",
        "x-bad": b"\xff",
        "x-note": "ok\r\nSet-Cookie: admin=1",
        "x\r\ny": "1",
        "x y": "1",
        "x" * 129: "1",
        "x-steer": "\x1b[2J",
        "x-space": " a ",
    }

    back = from_headers({**to_headers(MESSAGE), **foreign}, b"")

    assert back.meta.headers == {
        **MESSAGE.meta.headers,
        "x-count": "3",
        "x-raw": "café",
        "x-bad": "\ufffd",
        "x-space": "a",
    }


def test_a_malformed_trace_on_the_wire_is_dropped_and_counted() -> None:
    before = dropped_traces()

    back = from_headers({**to_headers(MESSAGE), "traceparent": "garbage"}, b"")

    assert (back.meta.traceparent, back.meta.tracestate) == (None, None)
    assert dropped_traces() == before + 1


@pytest.mark.parametrize("missing", ALWAYS_SENT)
def test_a_record_without_one_of_our_headers_is_not_ours(missing: str) -> None:
    headers = to_headers(MESSAGE)
    del headers[missing]

    with pytest.raises(NotAnOutboxMessage, match=f"{missing} is missing") as caught:
        from_headers(headers, b"")

    assert caught.value.code == "PROVIDER.NOT_AN_OUTBOX_MESSAGE"
    assert isinstance(caught.value, ProviderError)


def test_a_foreign_record_is_told_by_all_that_it_lacks() -> None:
    with pytest.raises(
        NotAnOutboxMessage, match=r"event-id, tenant-id, .*, content-type are missing; it may come from"
    ):
        from_headers({"x": "y"}, b"")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("event-id", "7", "event-id is not a UUID"),
        ("tenant-id", "", "tenant-id is not a UUID"),
        ("sequence", "x", "sequence is not a whole number"),
        ("sequence", "9" * 5_000, "sequence is not a whole number"),
        ("sequence", "9223372036854775808", "sequence is not a whole number"),
        ("key", "", "key is not one line of text"),
        ("key", "é" * 513, "key has more than 1024 bytes"),
        ("attempts", "-1", "attempts is not a whole number"),
        ("replays", "٣", "replays is not a whole number"),
        ("topic", "", "topic is not a topic of this library"),
        ("topic", "Orders/Placed", "topic is not a topic of this library"),
        ("topic", "a" * 128, "topic is not a topic of this library"),
        ("table", "", "table is not the name of a table"),
        ("table", "a.b.c", "table is not the name of a table"),
        ("table", 'public."orders"; drop', "table is not the name of a table"),
        ("content-type", "", "content-type is not a media type"),
        ("content-type", "json", "content-type is not a media type"),
        ("content-type", f"text/{'x' * 255}", "content-type is not a media type"),
        ("created-at", "yesterday", "created-at is not an RFC 3339 time with its offset"),
        ("created-at", "2026-01-02T03:04:05", "created-at is not an RFC 3339 time with its offset"),
        ("created-at", "2026-W01-1T00:00:00Z", "created-at is not an RFC 3339 time with its offset"),
        ("created-at", "2026-01-02T03:04:05+0000", "created-at is not an RFC 3339 time with its offset"),
        ("event-id", "+" + "1" * 31, "event-id is not a UUID"),
        ("event-id", "1_" * 15 + "11", "event-id is not a UUID"),
        ("tenant-id", "\u0661" * 32, "tenant-id is not a UUID"),
    ],
)
def test_a_header_of_ours_that_cannot_be_read_is_named(name: str, value: str, text: str) -> None:
    with pytest.raises(NotAnOutboxMessage, match=re.escape(text)):
        from_headers({**to_headers(MESSAGE), name: value}, b"")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([("a", "b")], "invalid headers: expected a mapping of str to str, got list"),
        (None, "expected a mapping of str to str, got NoneType"),
        ("a", "expected a mapping of str to str, got str"),
        ({f"x-{number}": "" for number in range(65)}, "there are 65 and at most 64 are allowed"),
        ({f"x-{number}": "" for number in range(10_000)}, "there are 10000 and at most 64 are allowed"),
        (
            {"x": "a" * 10_000_000},
            "invalid header 'x': the value has 10000000 characters and at most 16384 bytes",
        ),
        ({"a" * 10_000_000: "x"}, "the name has 10000000 characters and at most 128 are allowed"),
        (
            {"a": "x" * 9_000, "b": "é" * 4_000},
            "names and values have 17002 bytes and at most 16384 are allowed",
        ),
        ({7: "a"}, "a name must be a str, got int"),
        ({"": "a"}, "invalid header '': a name needs one or more ASCII letters, digits or"),
        ({"a b": "a"}, "invalid header 'a b': a name needs"),
        ({"a:": "a"}, "a name needs"),
        ({"a\n": "a"}, r"invalid header 'a\n': a name needs"),
        ({"é": "a"}, "a name needs"),
        ({"a": 1}, "invalid header 'a': the value must be a str, got int; convert it with str()"),
        ({"a": None}, "the value must be a str, got NoneType"),
        ({"a": b"x"}, "the value must be a str, got bytes"),
        (
            {"a": "x\r\ny: z"},
            "the value has the control character U+000D at position 1; a header is one line of text",
        ),
        ({"a": "x\n"}, "the control character U+000A at position 1"),
        ({"a": "\0"}, "the control character U+0000 at position 0"),
        ({"a": "x\ty"}, "the control character U+0009"),
        ({"a": "x\x85y"}, "the control character U+0085"),
        ({"a": "x\u2028y"}, "the control character U+2028"),
        ({"a": "\ud800"}, "the lone surrogate U+D800 at position 0"),
        ({"a": " x"}, "the value begins or ends with white space, which NATS strips on the way; strip it"),
        ({"a": "x\u00a0"}, "begins or ends with white space"),
        (
            {"X-A": "1", "x-a": "2"},
            "invalid header 'x-a': another header's name differs from it only in case",
        ),
        (
            {"Nats-Msg-Id": "1"},
            "invalid header 'Nats-Msg-Id': it would change what a broker or a CloudEvents consumer",
        ),
        ({"CE-id": "1"}, "it would change what a broker"),
        ({"ce_id": "1"}, "it would change what a broker"),
        ({"cloudEvents_id": "1"}, "it would change what a broker"),
        ({"CC": "1"}, "and cc and bcc, are refused in any case"),
        ({"bcc": "1"}, "it would change what a broker"),
    ],
)
def test_headers_that_could_not_travel_are_refused(values: object, text: str) -> None:
    with pytest.raises(InvalidHeader, match=re.escape(text)) as caught:
        Headers(values)

    assert caught.value.code == "MESSAGE.HEADER"
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", sorted(WIRE_HEADERS))
def test_our_own_names_are_refused_in_any_case(name: str) -> None:
    for variant in (name, name.upper(), name.title()):
        with pytest.raises(InvalidHeader, match="the library itself sends a header of this name"):
            Headers({variant: "x"})


def test_a_refused_name_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(InvalidHeader):
            Headers({"topic": "x"})


def test_an_error_never_shows_a_value() -> None:
    with pytest.raises(InvalidHeader) as caught:
        Headers({"authorization": "Bearer canary\n"})

    assert "canary" not in str(caught.value)


def test_the_bounds_themselves_are_allowed() -> None:
    assert len(Headers({f"x-{number}": "" for number in range(MAX_HEADERS)})) == MAX_HEADERS
    assert len(Headers({"x": "a" * (MAX_HEADERS_BYTES - 1)})) == 1


@pytest.mark.parametrize("value", ["", "a b", "é 😀", "zero\u200dwidth", 'a: b; c="d"'])
def test_one_line_of_any_language_is_a_value(value: str) -> None:
    assert Headers({"x": value})["x"] == value


def test_headers_are_a_copy_that_cannot_change() -> None:
    given = {"a": "1"}
    headers = Headers(given)
    given["a"] = "2"

    assert headers == {"a": "1"}
    assert isinstance(headers, Mapping)
    assert not hasattr(headers, "__setitem__")
    assert hash(headers) == hash(Headers({"a": "1"}))
    assert copy.deepcopy(headers) == headers
    assert pickle.loads(pickle.dumps(headers)) == headers  # noqa: S301
    assert repr(headers) == "Headers(a)"


def test_members_of_a_str_enum_become_plain_text() -> None:
    class Name(StrEnum):
        REGION = "x-region"

    headers = Headers({Name.REGION: Name.REGION})

    assert [(type(name), type(value)) for name, value in headers.items()] == [(str, str)]
