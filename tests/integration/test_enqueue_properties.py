"""Whatever is enqueued comes back as it was, and however often it is enqueued it is there once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbox_core import schema
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from tests.services.postgres import Database

pytestmark = pytest.mark.store

Run = Callable[[Callable[[asyncpg.Connection], Coroutine[Any, Any, None]]], None]

bounded = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40)
# Doubles that jsonb writes out in full, so that they come back equal.
numbers = st.integers(-(2**63), 2**63) | st.floats(-1e15, 1e15, allow_nan=False).filter(
    lambda x: x == 0 or abs(x) > 1e-9
)
payloads = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=15,
)
one_line = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=40
).filter(lambda value: value == value.strip())
headers = st.dictionaries(st.from_regex(r"x-[a-z0-9]{1,8}", fullmatch=True), one_line, max_size=4)


@pytest.fixture
def run(database: Database) -> Iterator[Run]:
    """Run each example on one connection, in a transaction that is rolled back."""
    with asyncio.Runner() as runner:

        async def prepare() -> asyncpg.Connection:
            connection = await asyncpg.connect(database.dsn)
            await schema.create(connection, "orders_outbox")
            return connection

        connection = runner.run(prepare())

        def run(example: Callable[[asyncpg.Connection], Coroutine[Any, Any, None]]) -> None:
            async def in_transaction() -> None:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    await example(connection)
                finally:
                    await transaction.rollback()

            runner.run(in_transaction())

        yield run
        runner.run(connection.close())


@bounded
@given(payload=payloads, key=st.none() | one_line, headers=headers, tenant=st.uuids())
def test_what_goes_in_comes_out(
    run: Run, payload: object, key: str | None, headers: dict[str, str], tenant: UUID
) -> None:
    async def example(connection: asyncpg.Connection) -> None:
        outbox = Outbox("orders_outbox")
        written = Message("a.b.v1", payload, key=key, headers=headers, tenant_id=tenant)
        sequence = await outbox.enqueue(connection, written)
        row = await outbox.get(connection, written.event_id, payload=True)
        assert row is not None
        assert row.payload is not None
        assert json.loads(row.payload) == payload
        assert (row.key, row.tenant_id, row.sequence) == (key, tenant, sequence)
        assert (row.headers or {}) == headers

    run(example)


@bounded
@given(body=st.binary(max_size=200))
def test_bodies_are_not_touched(run: Run, body: bytes) -> None:
    async def example(connection: asyncpg.Connection) -> None:
        outbox = Outbox("orders_outbox")
        written = Message("a.b.v1", body=body, content_type="application/octet-stream")
        await outbox.enqueue_many(connection, [written, Message("a.b.v1", 0)])
        row = await outbox.get(connection, written.event_id, payload=True)
        assert row is not None
        assert row.payload == body

    run(example)


@bounded
@given(
    batches=st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=6),
    ids=st.lists(st.uuids(version=4), min_size=10, max_size=10, unique=True),
)
def test_an_event_has_one_sequence_for_ever(run: Run, batches: list[list[int]], ids: list[UUID]) -> None:
    """Batches over ten events, in any order and with any repetition, on one key."""

    async def example(connection: asyncpg.Connection) -> None:
        outbox = Outbox("orders_outbox")
        known: dict[int, int] = {}
        for batch in batches:
            messages = [Message("a.b.v1", n, key="k", event_id=ids[n]) for n in batch]
            sequences = await outbox.enqueue_many(connection, messages)
            highest = max(known.values(), default=0)
            fresh = [n for n in dict.fromkeys(batch) if n not in known]
            for n, sequence in zip(batch, sequences, strict=True):
                assert known.setdefault(n, sequence) == sequence
            drawn = [known[n] for n in fresh]
            assert drawn == sorted(drawn)
            assert all(sequence > highest for sequence in drawn)
        assert await outbox.count(connection) == len(known)

    run(example)
