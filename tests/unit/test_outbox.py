"""`Outbox` before the database: what it refuses, with which words, and what it adds to a message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import TracerProvider

from outbox_core.errors import (
    ConfigError,
    EncodingError,
    InvalidHeader,
    InvalidTableName,
    InvalidTopic,
    MessageError,
    MessageTooLarge,
)
from outbox_core.message import Message
from outbox_core.outbox import DEFAULT_MAX_BYTES, Outbox
from outbox_core.record import NewRecord
from outbox_core.stores.memory import MemoryRow, MemoryStore, MemoryTransaction
from outbox_core.table import TableName

TABLE = TableName("public", "orders_outbox")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def written(message: Message, **options: Any) -> MemoryRow:
    store = MemoryStore()
    async with store.transaction() as tx:
        await Outbox(TABLE, **options).enqueue(tx, message)
    return store.table(TABLE).rows[message.event_id]


async def refusal(message: Any, **options: Any) -> MessageError:
    """The error of a refused message, after which the transaction goes on and holds nothing."""
    store = MemoryStore()
    async with store.transaction() as tx:
        with pytest.raises(MessageError) as refused:
            await Outbox(TABLE, **options).enqueue(tx, message)
        assert await Outbox(TABLE).count(tx) == 0
        await Outbox(TABLE).enqueue(tx, Message("a.b.v1", 1))
    return refused.value


@pytest.mark.parametrize("table", ["orders; DROP TABLE x", 'a"b', "a.b.c", "", "Orders", "pg_temp.orders"])
def test_sql_in_a_table_name_is_refused(table: str) -> None:
    with pytest.raises(InvalidTableName, match="invalid table name"):
        Outbox(table)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "512", None])
def test_a_size_limit_must_be_a_positive_int(value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Outbox(TABLE, max_bytes=value)
    assert str(refused.value) == f"max_bytes must be a positive int, got {value!r}"


def test_an_encoder_must_be_callable() -> None:
    encode: Any = "json"
    with pytest.raises(
        ConfigError, match="encode must be a function from a payload to JSON text, got 'json'"
    ):
        Outbox(TABLE, encode=encode)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"a": [1, float("nan")]}, "cannot encode payload.a[1]: the float nan is not a number JSON has"),
        ({"a": float("-inf")}, "cannot encode payload.a: the float -inf is not a number JSON has"),
        ({"a": "x\0y"}, "cannot encode payload.a: the text has NUL (\\u0000) at position 1"),
        ({"a\0": 1}, "cannot encode payload: a key has NUL (\\u0000) at position 1"),
        (["\ud83d"], "cannot encode payload[0]: the text has the lone surrogate U+D83D at position 0"),
        ({"a": b"bytes"}, "cannot encode payload.a: bytes is not JSON; send raw bytes as body="),
        ({"a": {1, 2}}, "cannot encode payload.a: set has no order"),
        ({"a": object()}, "cannot encode payload.a: object is not known"),
    ],
)
async def test_what_jsonb_would_refuse_is_refused_first(payload: object, text: str) -> None:
    error = await refusal(Message("a.b.v1", payload))
    assert isinstance(error, EncodingError)
    assert str(error).startswith(text)


@pytest.mark.asyncio
async def test_deep_nesting_is_refused() -> None:
    payload: object = 0
    for _ in range(100_000):
        payload = [payload]
    error = await refusal(Message("a.b.v1", payload))
    assert "it is nested more than 200 levels deep; make it flatter" in str(error)


@pytest.mark.asyncio
async def test_what_is_not_a_message_is_refused() -> None:
    assert str(await refusal({"topic": "a.b.v1"})) == "expected a Message, got dict"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (Message("a.b.v1", 1), "enqueue_many takes several messages; use enqueue for one"),
        (None, "enqueue_many takes an iterable of messages, got NoneType"),
        (7, "enqueue_many takes an iterable of messages, got int"),
        ([None], "expected a Message, got NoneType"),
    ],
)
async def test_what_is_not_several_messages_is_refused(messages: Any, text: str) -> None:
    async with MemoryStore().transaction() as tx:
        with pytest.raises(MessageError) as refused:
            await Outbox(TABLE).enqueue_many(tx, messages)
    assert str(refused.value) == text


@pytest.mark.asyncio
async def test_an_error_of_the_callers_own_generator_is_not_hidden() -> None:
    def messages() -> Iterator[Message]:
        yield Message("a.b.v1", 1)
        raise TypeError("the caller's")

    async with MemoryStore().transaction() as tx:
        with pytest.raises(TypeError, match="the caller's"):
            await Outbox(TABLE).enqueue_many(tx, messages())


@pytest.mark.asyncio
async def test_a_payload_over_the_limit_is_refused() -> None:
    secret = "4111-1111"
    at_limit = DEFAULT_MAX_BYTES - 2
    assert await written(Message("a.b.v1", "x" * at_limit))
    error = await refusal(Message("a.b.v1", secret + "x" * at_limit))
    assert isinstance(error, MessageTooLarge)
    assert (error.size, error.limit) == (DEFAULT_MAX_BYTES + len(secret), DEFAULT_MAX_BYTES)
    assert str(error).startswith(
        f"the message has {error.size} bytes of encoded payload and headers and at most"
    )
    assert secret not in str(error)


@pytest.mark.asyncio
async def test_the_limit_counts_bytes_of_bodies_and_headers_too() -> None:
    assert await written(Message("a.b.v1", body=b"x" * 10, content_type="a/b"), max_bytes=10)
    assert str(await refusal(Message("a.b.v1", body=b"x" * 11, content_type="a/b"), max_bytes=10))
    error = await refusal(Message("a.b.v1", "é", headers={"x-a": "éé"}), max_bytes=17)
    assert isinstance(error, MessageTooLarge)
    assert error.size == len('"é"'.encode()) + len('{"x-a":"éé"}'.encode())


def test_headers_out_of_proportion_are_refused() -> None:
    with pytest.raises(InvalidHeader, match="there are 10000 and at most 64 are allowed"):
        Message("a.b.v1", 1, headers={f"x-{n}": "" for n in range(10_000)})
    with pytest.raises(InvalidHeader) as refused:
        Message("a.b.v1", 1, headers={"x-large": "y" * 10_000_000})
    assert len(str(refused.value)) < 500


def test_sql_in_a_topic_is_refused() -> None:
    with pytest.raises(InvalidTopic, match="invalid topic"):
        Message("a.b'); DROP TABLE orders_outbox; --", 1)


@pytest.mark.asyncio
async def test_strict_topics_have_four_parts() -> None:
    assert await written(Message("shop.order.placed.v1", 1), strict_topics=True)
    assert isinstance(await refusal(Message("orders", 1), strict_topics=True), InvalidTopic)


@pytest.mark.asyncio
async def test_another_encoder_can_be_given() -> None:
    row = await written(
        Message("a.b.v1", {"b": 1, "a": 2}), encode=lambda value: json.dumps(value, sort_keys=True)
    )
    assert row.record.payload == '{"a": 2, "b": 1}'
    error = await refusal(Message("a.b.v1", 1), encode=lambda _: b"1")
    assert "the encode function must return a str of JSON, got bytes" in str(error)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("payload", "encode", "text"),
    [
        ([float("nan")], json.dumps, "cannot encode payload: it has NaN, which is not JSON"),
        ({"a": "\ud83d"}, json.dumps, "cannot encode payload.a: the text has the lone surrogate U+D83D"),
        ({"a": 1}, str, "cannot encode payload: it is not JSON"),
    ],
)
async def test_what_another_encoder_makes_is_checked_too(payload: object, encode: Any, text: str) -> None:
    error = await refusal(Message("a.b.v1", payload), encode=encode)
    assert isinstance(error, EncodingError)
    assert str(error).startswith(text)


@pytest.mark.asyncio
@pytest.mark.parametrize("value", ["", 'quote " and \\', "žluť 🐎", "</script>"])
async def test_headers_are_written_as_json(value: str) -> None:
    row = await written(Message("a.b.v1", 1, headers={"x-a": value, "x-b": "2"}))
    assert row.record.headers is not None
    assert json.loads(row.record.headers) == {"x-a": value, "x-b": "2"}


@pytest.mark.asyncio
async def test_the_current_span_is_the_trace_context() -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("checkout") as span:
        row = await written(Message("a.b.v1", 1))
        context = span.get_span_context()
    assert (
        row.record.traceparent
        == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    )
    assert row.record.tracestate is None


@pytest.mark.asyncio
async def test_an_explicit_trace_context_wins() -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("checkout"):
        row = await written(Message("a.b.v1", 1, traceparent=TRACEPARENT, tracestate="vendor=1"))
        bare = await written(Message("a.b.v1", 1, traceparent=TRACEPARENT))
    assert (row.record.traceparent, row.record.tracestate) == (TRACEPARENT, "vendor=1")
    assert (bare.record.traceparent, bare.record.tracestate) == (TRACEPARENT, None)


@pytest.mark.asyncio
async def test_without_a_span_there_is_no_trace_context() -> None:
    row = await written(Message("a.b.v1", 1))
    assert (row.record.traceparent, row.record.tracestate) == (None, None)


@pytest.mark.asyncio
async def test_hints_are_coalesced_and_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr("outbox_core.outbox.time.monotonic", lambda: now)
    told: list[TableName] = []
    store = MemoryStore(on_hint=told.append)
    outbox, silent = Outbox(TABLE), Outbox(TABLE, hint=False)

    async def write(outbox: Outbox) -> None:
        async with store.transaction() as tx:
            await outbox.enqueue(tx, Message("a.b.v1", 1))

    await write(silent)
    assert told == []
    await write(outbox)
    await write(outbox)
    assert told == [TABLE]
    now += 0.05
    await write(outbox)
    assert told == [TABLE, TABLE]


@pytest.mark.asyncio
async def test_each_row_has_an_id_of_its_own() -> None:
    store = MemoryStore()
    async with store.transaction() as tx:
        await Outbox(TABLE).enqueue_many(tx, [Message("a.b.v1", n) for n in range(3)])
    ids = [row.id for row in store.table(TABLE).rows.values()]
    assert len(set(ids)) == 3
    assert all(isinstance(id_, UUID) and id_.version == 7 for id_ in ids)


class AllOrNone:
    """A transaction that writes none of a batch with a duplicate, as where an error undoes the whole statement."""

    def __init__(self, tx: MemoryTransaction) -> None:
        self._tx = tx
        self.batches: list[int] = []

    async def insert(self, table: TableName, records: Sequence[NewRecord], **how: Any) -> list[int] | None:
        self.batches.append(len(records))
        if await self._tx.existing(table, [record.event_id for record in records]):
            return None
        return await self._tx.insert(table, records, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


@pytest.mark.asyncio
async def test_a_store_may_write_none_of_a_batch_that_has_a_duplicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages = [Message("a.b.v1", n, key="k") for n in range(3)]
    store = MemoryStore()
    async with store.transaction() as tx:
        first = await Outbox(TABLE).enqueue(tx, messages[1])
    async with store.transaction() as tx:
        strict = AllOrNone(tx)
        monkeypatch.setattr("outbox_core.outbox.adapt", lambda _: strict)
        sequences = await Outbox(TABLE).enqueue_many(tx, messages, serialize_key=True)
    assert strict.batches == [3, 2]
    assert sequences[1] == first
    rows = store.table(TABLE).rows
    assert [rows[message.event_id].sequence for message in messages] == sequences
