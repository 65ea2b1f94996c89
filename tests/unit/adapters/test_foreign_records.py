"""Objects that are not a record of the consumer's client, and the errors for them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from outbox_amqp import from_message
from outbox_core.errors import NotAnOutboxMessage, OutboxError, UnsupportedRecord
from outbox_kafka import from_record
from outbox_nats import from_msg

Read = Callable[[Any], object]
BODIES: dict[Read, str] = {from_record: "value", from_msg: "data", from_message: "body"}
each = pytest.mark.parametrize("read", BODIES, ids=lambda read: read.__name__)


def record(read: Read, **parts: object) -> SimpleNamespace:
    headers: object = [] if read is from_record else {}
    return SimpleNamespace(**{BODIES[read]: b"", "headers": headers, "content_type": None, **parts})


@each
@pytest.mark.parametrize("given", [None, "text", b"bytes", 7, {"a": 1}, [object()], object()])
def test_an_object_that_is_not_a_record_is_refused_by_its_type(read: Read, given: object) -> None:
    with pytest.raises(
        UnsupportedRecord, match=rf"expected .* as .* gives it.*, got {type(given).__name__}$"
    ) as raised:
        read(given)
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value, OutboxError)
    assert raised.value.code == "PROVIDER.UNSUPPORTED_RECORD"


@each
def test_the_record_of_another_client_is_refused(read: Read) -> None:
    other = record(read, **{BODIES[read]: lambda: b"", "headers": list})
    with pytest.raises(UnsupportedRecord, match=r"got types\.SimpleNamespace$"):
        read(other)


@each
def test_a_body_that_the_consumer_decoded_is_refused(read: Read) -> None:
    with pytest.raises(UnsupportedRecord, match=f"its {BODIES[read]} is of type dict and must be bytes"):
        read(record(read, **{BODIES[read]: {"order": 7}}))
    if read is from_record:
        with pytest.raises(UnsupportedRecord, match="leave value_deserializer out of the consumer"):
            read(record(read, value="text"))


@each
@pytest.mark.parametrize("headers", [7, "ab", [1, 2]])
def test_headers_of_another_shape_are_refused(read: Read, headers: object) -> None:
    with pytest.raises(UnsupportedRecord, match="its headers are"):
        read(record(read, headers=headers))


@each
def test_a_record_without_our_headers_is_refused(read: Read) -> None:
    with pytest.raises(NotAnOutboxMessage, match=r"event-id, .* are missing"):
        read(record(read))
    if read is not from_record:
        with pytest.raises(NotAnOutboxMessage, match=r"event-id, .* are missing"):
            read(record(read, headers=None))
