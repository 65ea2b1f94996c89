"""The types of writing and reading messages, checked by mypy and pyright; run to prove that the calls are real."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import assert_type
from uuid import UUID

import pytest

from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.record import State, StoredMessage
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName


def test_messages() -> None:
    message = assert_type(Message("shop.order.placed.v1", {"order": 1}, delay=timedelta(seconds=1)), Message)
    assert_type(message.topic, str)
    assert_type(message.payload, object)
    assert_type(message.event_id, UUID)
    assert_type(message.tenant_id, UUID)
    assert_type(message.key, str | None)
    assert_type(message.headers, Mapping[str, str])
    assert_type(Message.from_json("shop.order.placed.v1", "{}"), Message)
    assert_type(Message("shop.avro.v1", body=b"", content_type="application/avro").body, bytes | None)


@pytest.mark.asyncio
async def test_enqueue_and_read_back() -> None:
    outbox = Outbox("orders_outbox", max_bytes=1024, strict_topics=True, hint=False)
    assert_type(outbox.table, TableName)
    message = Message("shop.order.placed.v1", {"order": 1})
    async with MemoryStore().transaction() as tx:
        assert_type(await outbox.enqueue(tx, message, serialize_key=True), int)
        assert_type(
            await outbox.enqueue_many(tx, (message for _ in range(2)), allow_autocommit=True), list[int]
        )
        stored = assert_type(await outbox.get(tx, message.event_id), StoredMessage | None)
        assert_type(await outbox.count(tx, tenant_id=message.tenant_id, state=State.PENDING), int)
        pending = assert_type(await outbox.pending(tx, limit=1, payload=True), list[StoredMessage])
    assert stored is not None
    assert_type(stored.state, State)
    assert_type(stored.payload, bytes | None)
    assert_type(stored.headers, Mapping[str, str] | None)
    assert_type(pending[0].available_at, datetime)
