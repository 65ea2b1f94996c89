from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest

from outbox_core.errors import (
    EncodingError,
    InvalidHeader,
    InvalidKey,
    InvalidTopic,
    MessageError,
    OutboxError,
)
from outbox_core.message import ABSENT, NIL_UUID, DispatchedMessage, Message, Meta
from outbox_core.trace import dropped_traces

TOPIC = "orders.order.placed.v1"
TENANT = UUID("7d444840-9dc0-11d1-b245-5ffdce74fad2")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_payload_is_all_a_message_needs_besides_its_topic() -> None:
    message = Message(TOPIC, {"id": 1})

    assert message.json_text() == '{"id":1}'
    assert message.event_id.version == 7
    assert message.tenant_id == NIL_UUID
    assert message.headers == {}
    assert message.body is None
    assert message.content_type is None
    assert (message.key, message.available_at, message.delay, message.traceparent, message.tracestate) == (
        None,
    ) * 5


def test_each_message_has_its_own_event_id_and_later_ones_are_greater() -> None:
    assert Message(TOPIC, 1).event_id < Message(TOPIC, 1).event_id


@pytest.mark.parametrize(
    ("payload", "text"), [("text", '"text"'), (None, "null"), ([], "[]"), (0, "0"), ("", '""')]
)
def test_any_json_value_is_a_payload(payload: object, text: str) -> None:
    assert Message(TOPIC, payload).json_text() == text


def test_a_body_travels_untouched_with_its_type() -> None:
    message = Message(TOPIC, body=b"\x00\xff", content_type="application/avro")

    assert (message.body, message.content_type) == (b"\x00\xff", "application/avro")
    assert message.payload is ABSENT
    assert message.json_text() is None
    assert Message(TOPIC, body=b"", content_type="text/plain; charset=utf-8").body == b""


def test_everything_can_be_given() -> None:
    available_at = datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    message = Message(
        TOPIC,
        1,
        tenant_id=TENANT,
        event_id=UUID(int=7),
        key="order-1",
        headers={"x-source": "shop"},
        available_at=available_at,
        traceparent=TRACEPARENT,
        tracestate="a=1",
    )

    assert message.headers["x-source"] == "shop"
    assert (message.tenant_id, message.event_id, message.key) == (TENANT, UUID(int=7), "order-1")
    assert message.available_at == available_at
    assert (message.traceparent, message.tracestate) == (TRACEPARENT, "a=1")
    assert Message(TOPIC, 1, delay=timedelta(0)).delay == timedelta(0)


def test_text_that_is_json_is_kept_as_it_is() -> None:
    text = '{ "b": 1.10,\n "a": [] }'
    message = Message.from_json(TOPIC, text, key="k", headers={"x": "y"}, delay=timedelta(seconds=1))

    assert message.json_text() == text
    assert (message.key, message.headers, message.delay) == ("k", {"x": "y"}, timedelta(seconds=1))
    assert message.event_id.version == 7
    assert Message.from_json(TOPIC, "1", event_id=UUID(int=7), tenant_id=TENANT).event_id == UUID(int=7)


@pytest.mark.parametrize("text", ["{", "NaN", '"\\u0000"', '"\\ud800"'])
def test_text_that_jsonb_would_refuse_is_refused_when_the_message_is_made(text: str) -> None:
    with pytest.raises(EncodingError):
        Message.from_json(TOPIC, text)


def test_another_encode_takes_the_place_of_ours_but_not_of_text_that_is_json() -> None:
    def encode(value: object) -> str:
        return json.dumps({"wrapped": value})

    assert Message(TOPIC, 1).json_text(encode) == '{"wrapped": 1}'
    assert Message.from_json(TOPIC, "1").json_text(encode) == "1"
    assert Message(TOPIC, body=b"1", content_type="a/b").json_text(encode) is None


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (b"{}", "the encode function must return a str of JSON, got bytes"),
        ('"\\u0000"', "the text has NUL (\\u0000) at position 0, which PostgreSQL cannot store"),
        ('{"a": 1, "a\\u0000": 2}', "cannot encode payload: a key has NUL"),
        ('{"a": "\\u0000", "a": 2}', "it has NUL (\\u0000), which PostgreSQL cannot store"),
        ('"\ud800"', "the text has the lone surrogate U+D800 at position 0"),
        ('{"a": ["\\ud800"]}', "cannot encode payload.a[0]: the text has the lone surrogate U+D800"),
        ("[" * 300 + "]" * 300, "nested more than 200 levels deep"),
        ("[" * 300 + '"' + "a" * 10_000, "it is not JSON"),
        ("[1, NaN]", "it has NaN, which is not JSON; send null or a string instead"),
        ("-Infinity", "it has -Infinity, which is not JSON"),
        ("{'a': 1}", "it is not JSON: Expecting property name"),
        ("", "it is not JSON: Expecting value at line 1, column 1"),
    ],
)
def test_what_another_encode_returns_is_checked(result: Any, text: str) -> None:
    with pytest.raises(EncodingError, match=re.escape(text)):
        Message(TOPIC, 1).json_text(lambda _: result)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "a message needs a payload, or a body with its content_type; for JSON null write payload=None"),
        (
            {"payload": 1, "body": b"", "content_type": "a/b"},
            "a message has either a payload or a body, not both",
        ),
        ({"payload": None, "body": b""}, "a message has either a payload or a body, not both"),
        (
            {"payload": 1, "content_type": "a/b"},
            "content_type belongs to body=; a payload is always application/json",
        ),
        ({"content_type": "a/b"}, "a message needs a payload"),
        ({"body": b""}, "a body needs its content_type, such as 'application/avro'"),
        (
            {"body": "x", "content_type": "a/b"},
            "body must be bytes, got str; encode it, or pass it as the payload",
        ),
        (
            {"body": bytearray(), "content_type": "a/b"},
            "body must be bytes, got bytearray; wrap it in bytes()",
        ),
        ({"body": 7, "content_type": "a/b"}, "body must be bytes, got int"),
        ({"body": b"", "content_type": 7}, "content_type must be a str, got int"),
        (
            {"body": b"", "content_type": ""},
            "content_type '' is not a media type, such as 'application/avro'",
        ),
        ({"body": b"", "content_type": "avro"}, "content_type 'avro' is not a media type"),
        ({"body": b"", "content_type": "a/b\r\nx: y"}, r"content_type 'a/b\r\nx: y' is not a media type"),
        ({"body": b"", "content_type": "a/b "}, "is not a media type"),
        ({"body": b"", "content_type": "a/b; c=é"}, "is not a media type"),
        (
            {"body": b"", "content_type": "a/" + "b" * 300},
            "content_type has 302 characters and at most 255 are allowed",
        ),
        (
            {"payload": 1, "tenant_id": str(TENANT)},
            "tenant_id must be a UUID, got str; convert it with UUID()",
        ),
        ({"payload": 1, "tenant_id": None}, "tenant_id must be a UUID, got NoneType"),
        ({"payload": 1, "event_id": 7}, "event_id must be a UUID, got int"),
        ({"payload": 1, "event_id": NIL_UUID}, "event_id is the nil UUID, which identifies nothing"),
        (
            {"payload": 1, "available_at": datetime(2026, 1, 2)},  # noqa: DTZ001
            "available_at 2026-01-02 00:00:00 is naive, so nobody can tell which moment it means; give it a tzinfo",
        ),
        ({"payload": 1, "available_at": "soon"}, "available_at must be a datetime, got str"),
        (
            {"payload": 1, "available_at": datetime(2026, 1, 2, tzinfo=UTC).date()},
            "must be a datetime, got date",
        ),
        (
            {"payload": 1, "available_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
            "is outside the years 1 to 9999 in UTC",
        ),
        (
            {"payload": 1, "available_at": datetime(2026, 1, 2, tzinfo=UTC), "delay": timedelta(1)},
            "give either available_at (a moment) or delay (a duration), not both",
        ),
        ({"payload": 1, "delay": 5}, "delay must be a timedelta, got int; write timedelta(seconds=…)"),
        (
            {"payload": 1, "delay": timedelta(seconds=-1)},
            "delay is -1 day, 23:59:59 and must be from 0 to 3660 days",
        ),
        ({"payload": 1, "delay": timedelta(days=3661)}, "must be from 0 to 3660 days"),
    ],
)
def test_a_message_that_makes_no_sense_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(MessageError, match=re.escape(text)) as caught:
        Message(TOPIC, **arguments)

    assert caught.value.code == "MESSAGE.INVALID"
    assert isinstance(caught.value, OutboxError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", "invalid key '': it is empty; leave it out when the message has no order to keep"),
        (7, "invalid key: expected a str or None, got int; convert it with str()"),
        (b"k", "invalid key: expected a str or None, got bytes"),
        ("a\0", "it has the control character U+0000 at position 1; it travels as a header"),
        ("a\nb", "it has the control character U+000A at position 1"),
        ("a\x9fb", "it has the control character U+009F"),
        ("\udc80", "it has the lone surrogate U+DC80 at position 0"),
        (" a", "it begins or ends with white space, which NATS strips from headers on the way"),
        ("a\u2003", "it begins or ends with white space"),
        ("k" * 1025, "it has 1025 characters and at most 1024 bytes are allowed"),
        ("é" * 513, "it has 1026 bytes in UTF-8 and at most 1024 are allowed"),
        ("k" * 10_000_000, "(10000000 characters)"),
    ],
)
def test_a_key_that_cannot_be_indexed_or_travel_is_refused(key: Any, text: str) -> None:
    with pytest.raises(InvalidKey, match=re.escape(text)) as caught:
        Message(TOPIC, 1, key=key)

    assert caught.value.code == "MESSAGE.KEY"
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("key", ["k" * 1024, "é" * 512, "order 7", "客户-😀", "a/b:c"])
def test_any_other_line_of_text_is_a_key(key: str) -> None:
    assert Message(TOPIC, 1, key=key).key == key


def test_topic_and_headers_are_checked_by_their_own_rules() -> None:
    with pytest.raises(InvalidTopic, match="'O' at position 0"):
        Message("Orders", 1)
    nothing: Any = None
    with pytest.raises(InvalidTopic, match=r"^invalid topic: expected a str, got NoneType$"):
        Message(nothing, 1)
    with pytest.raises(InvalidHeader, match="the library itself sends a header of this name"):
        Message(TOPIC, 1, headers={"Event-Id": "1"})


def test_a_malformed_trace_is_dropped_and_counted_never_fatal() -> None:
    before = dropped_traces()
    message = Message(TOPIC, 1, traceparent="garbage", tracestate="a=1")

    assert (message.traceparent, message.tracestate) == (None, None)
    assert dropped_traces() == before + 1


def test_members_of_a_str_enum_become_plain_text() -> None:
    class Topics(StrEnum):
        PLACED = TOPIC

    message = Message(Topics.PLACED, 1, key=Topics.PLACED)

    assert (type(message.topic), message.topic) == (str, TOPIC)
    assert (type(message.key), message.key) == (str, TOPIC)


def test_a_message_is_frozen_comparable_and_can_be_copied() -> None:
    given = {"x": "1"}
    message = Message(TOPIC, {"a": [1]}, headers=given)
    given["x"] = "2"
    field = "topic"

    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(message, field, "other")
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(message, "unknown", 1)
    assert message.headers == {"x": "1"}
    assert message == Message(TOPIC, {"a": [1]}, headers={"x": "1"}, event_id=message.event_id)
    assert message != Message(TOPIC, {"a": [1]}, headers={"x": "1"})
    assert copy.deepcopy(message) == message
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301
    assert dataclasses.replace(message, topic="other").event_id == message.event_id
    assert dataclasses.asdict(message)["headers"] == {"x": "1"}


def test_a_message_from_json_can_be_copied_too() -> None:
    message = Message.from_json(TOPIC, '{"a": 1}')

    assert dataclasses.replace(message, key="k").json_text() == '{"a": 1}'
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301


def test_what_may_be_secret_is_not_in_a_repr() -> None:
    meta = Meta(
        "public.a",
        NIL_UUID,
        TOPIC,
        UUID(int=1),
        1,
        1,
        0,
        None,
        {"x": "canary"},
        datetime(2026, 1, 2, tzinfo=UTC),
    )

    for shown in (
        repr(Message(TOPIC, "canary", headers={"x": "canary"})),
        repr(Message.from_json(TOPIC, '"canary"')),
        repr(Message(TOPIC, body=b"canary", content_type="a/b")),
        repr(DispatchedMessage(meta, b"canary", "a/b")),
    ):
        assert TOPIC in shown
        assert "canary" not in shown


def test_a_dispatched_payload_can_be_parsed() -> None:
    meta = Meta("public.a", NIL_UUID, TOPIC, UUID(int=1), 1, 1, 0, None, {}, datetime(2026, 1, 2, tzinfo=UTC))

    assert DispatchedMessage(meta, b'{"a": "\xc3\xa9"}', "application/json").json() == {"a": "é"}
    assert (meta.traceparent, meta.tracestate) == (None, None)
