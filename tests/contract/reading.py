"""The contract of reading an outbox in a transaction."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_core.errors import ConfigError, MessageError
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.record import State
from tests.contract.sessions import TABLE, Sessions
from tests.contract.writing import message

A = UUID("aaaaaaaa-aaaa-4aaa-aaaa-aaaaaaaaaaaa")
B = UUID("bbbbbbbb-bbbb-4bbb-bbbb-bbbbbbbbbbbb")


class ReadingContract:
    """Run by every kind of ``tx``; a subclass provides the fixture ``sessions``."""

    async def test_a_transaction_reads_what_it_wrote(self, sessions: Sessions) -> None:
        written = message(7, headers={"x-a": "1"})
        avro = Message("shop.avro.v1", body=b"\x00\x01", content_type="application/avro")
        async with sessions.begin() as tx:
            outbox = Outbox(TABLE)
            await outbox.enqueue(tx, written)
            await outbox.enqueue(tx, avro)
            row = await outbox.get(tx, written.event_id, payload=True)
            raw = await outbox.get(tx, avro.event_id, payload=True)
            assert await outbox.count(tx) == 2
            assert [one.event_id for one in await outbox.pending(tx)] == [written.event_id, avro.event_id]
        assert row is not None
        assert row.payload is not None
        assert json.loads(row.payload) == {"number": 7}
        assert row.headers == {"x-a": "1"}
        assert raw is not None
        assert (raw.payload, raw.content_type, raw.headers) == (b"\x00\x01", "application/avro", None)

    async def test_an_unknown_id_is_none(self, sessions: Sessions) -> None:
        async with sessions.begin() as tx:
            assert await Outbox(TABLE).get(tx, uuid4()) is None

    async def test_payloads_are_read_only_when_asked_for(self, sessions: Sessions) -> None:
        avro = Message("shop.avro.v1", body=b"\x00", content_type="application/avro", tenant_id=A)
        async with sessions.begin() as tx:
            outbox = Outbox(TABLE)
            await outbox.enqueue_many(tx, [message(tenant_id=A, headers={"x-a": "1"}), avro])
            for rows in (await outbox.pending(tx), await outbox.pending(tx, tenant_id=A)):
                assert [(row.payload, row.headers) for row in rows] == [(None, None)] * 2
            row = await outbox.get(tx, avro.event_id)
            assert row is not None
            assert row.payload is None
            for rows in (
                await outbox.pending(tx, payload=True),
                await outbox.pending(tx, tenant_id=A, payload=True),
            ):
                assert {row.payload is None for row in rows} == {False}

    async def test_every_state_is_read_and_counted(self, sessions: Sessions) -> None:
        outbox = Outbox(TABLE)
        states = [State.PENDING, State.IN_FLIGHT, State.PUBLISHED, State.DEAD]
        written = [message(n, tenant_id=A) for n in range(len(states))]
        async with sessions.begin() as tx:
            await outbox.enqueue_many(tx, written)
            await outbox.enqueue(tx, message(tenant_id=B))
        for one, state in zip(written, states, strict=True):
            await sessions.move(one.event_id, state)
        async with sessions.begin() as tx:
            rows = [await outbox.get(tx, one.event_id) for one in written]
            assert [row and row.state for row in rows] == states
            assert [await outbox.count(tx, tenant_id=A, state=state) for state in states] == [1, 1, 1, 1]
            assert [await outbox.count(tx, state=state) for state in states] == [2, 1, 1, 1]
            assert [await outbox.count(tx), await outbox.count(tx, tenant_id=A)] == [5, 4]
            assert await outbox.count(tx, tenant_id=uuid4()) == 0
            waiting = await outbox.pending(tx, tenant_id=A)
            assert [row.event_id for row in waiting] == [one.event_id for one in written[:2]]
        published, dead = rows[2], rows[3]
        assert published is not None
        assert published.published_at is not None
        assert published.published_at.tzinfo is not None
        assert published.published_at >= published.created_at
        assert dead is not None
        assert dead.dead_at is not None
        assert dead.last_error == "PROVIDER.PERMANENT: refused"

    async def test_pending_is_in_claim_order_and_limited(self, sessions: Sessions) -> None:
        outbox = Outbox(TABLE)
        late = message(1, delay=timedelta(hours=1), tenant_id=A)
        soon = [message(n, tenant_id=A) for n in (2, 3)]
        foreign = message(4, tenant_id=B)
        async with sessions.begin() as tx:
            await outbox.enqueue_many(tx, [late, *soon, foreign])
            everything = [row.event_id for row in await outbox.pending(tx)]
            assert everything == [one.event_id for one in (*soon, foreign, late)]
            assert [row.event_id for row in await outbox.pending(tx, limit=2)] == everything[:2]
            of_tenant = [row.event_id for row in await outbox.pending(tx, tenant_id=A, limit=2)]
            assert of_tenant == [late.event_id, soon[0].event_id]

    async def test_a_state_may_be_given_by_its_value(self, sessions: Sessions) -> None:
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, message())
            assert await Outbox(TABLE).count(tx, state="pending") == 1
            assert await Outbox(TABLE).count(tx, state="dead") == 0

    async def test_wrong_arguments_are_refused_and_the_transaction_continues(
        self, sessions: Sessions
    ) -> None:
        outbox: Any = Outbox(TABLE)
        written = message()
        async with sessions.begin() as tx:
            with pytest.raises(
                MessageError, match=r"^event_id must be a UUID, got str; convert it with UUID"
            ):
                await outbox.get(tx, str(written.event_id))
            with pytest.raises(MessageError, match=r"^tenant_id must be a UUID, got int$"):
                await outbox.count(tx, tenant_id=7)
            with pytest.raises(MessageError, match=r"^tenant_id must be a UUID, got str"):
                await outbox.pending(tx, tenant_id="x")
            for state in ("lost", 7, ["dead"]):
                with pytest.raises(ConfigError) as refused:
                    await outbox.count(tx, state=state)
                assert str(refused.value) == (
                    f"state must be one of pending, in_flight, published, dead, got {state!r}"
                )
            for limit in (0, -1, 1_000_001, True, 1.0, "5", None):
                with pytest.raises(ConfigError) as refused:
                    await outbox.pending(tx, limit=limit)
                assert str(refused.value) == f"limit must be an int from 1 to 1000000, got {limit!r}"
            await outbox.enqueue(tx, written)
            assert len(await outbox.pending(tx, limit=1_000_000)) == 1
