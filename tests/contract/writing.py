"""What `Outbox.enqueue` and `enqueue_many` promise about one transaction."""

from __future__ import annotations

import json
import random
from datetime import UTC, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_core.errors import EncodingError, MessageError, MessageTooLarge, NotInTransaction
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.record import State, StoredMessage
from tests.contract.sessions import TABLE, Interrupted, Sessions, interrupted

TENANT = UUID("11111111-1111-1111-1111-111111111111")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
INJECTION = "'); DROP TABLE shop.orders_outbox; --"


def message(number: int = 0, **fields: Any) -> Message:
    return Message("shop.order.placed.v1", {"number": number}, **fields)


async def stored(sessions: Sessions, event_id: UUID) -> StoredMessage | None:
    """What somebody else sees."""
    async with sessions.observer.begin() as tx:
        return await Outbox(TABLE).get(tx, event_id, payload=True)


async def count(sessions: Sessions) -> int:
    async with sessions.observer.begin() as tx:
        return await Outbox(TABLE).count(tx)


class WritingContract:
    """Run by every kind of ``tx``; a subclass provides the fixture ``sessions``."""

    async def test_everything_is_stored_as_given(self, sessions: Sessions) -> None:
        payload = {"text": "žluťoučký 🐎 \" ' \\ %s $1 :x", "list": [1, 2.5, None, True, {}], "big": 2**60}
        written = Message(
            "shop.order.placed.v1",
            payload,
            tenant_id=TENANT,
            key="order-7 ☃",
            headers={"x-region": "Čechy %(p1)s", "x-empty": ""},
            traceparent=TRACEPARENT,
            tracestate="vendor=1",
        )
        async with sessions.begin() as tx:
            sequence = await Outbox(TABLE).enqueue(tx, written)
        row = await stored(sessions, written.event_id)
        assert row is not None
        assert row.payload is not None
        assert (row.sequence, row.event_id, row.tenant_id) == (sequence, written.event_id, TENANT)
        assert (row.topic, row.key, row.content_type) == (written.topic, "order-7 ☃", "application/json")
        assert row.headers == {"x-region": "Čechy %(p1)s", "x-empty": ""}
        assert json.loads(row.payload) == payload
        assert (row.state, row.attempts, row.replays, row.last_error) == (State.PENDING, 0, 0, None)

    async def test_any_json_value_is_a_payload(self, sessions: Sessions) -> None:
        payloads: list[object] = [None, "text", 0, [], "null", "🐎", ""]
        written = [Message("shop.order.placed.v1", payload) for payload in payloads]
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue_many(tx, written[:4])
            for one in written[4:]:
                await Outbox(TABLE).enqueue(tx, one)
        for payload, one in zip(payloads, written, strict=True):
            row = await stored(sessions, one.event_id)
            assert row is not None
            assert row.payload is not None
            assert json.loads(row.payload) == payload

    async def test_a_body_is_not_touched(self, sessions: Sessions) -> None:
        bodies = [bytes(range(256)), b"", b"\\x00", b"{ }"]
        written = [Message("shop.avro.v1", body=body, content_type="application/avro") for body in bodies]
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, written[0])
            await Outbox(TABLE).enqueue_many(tx, written[1:])
        rows = [await stored(sessions, one.event_id) for one in written]
        assert [row and row.payload for row in rows] == bodies
        assert {row and row.content_type for row in rows} == {"application/avro"}

    async def test_sequences_come_back_in_input_order(self, sessions: Sessions) -> None:
        # Random ids on one key: sorted by id they would come in another order.
        rng = random.Random(4)
        ids = [UUID(int=rng.getrandbits(128), version=4) for _ in range(50)]
        mixed: list[dict[str, Any]] = [
            {},
            {"headers": {"x-a": "1"}},
            {"delay": timedelta(seconds=5)},
            {"tenant_id": TENANT, "traceparent": TRACEPARENT},
        ]
        written = [message(n, event_id=id_, key="k", **rng.choice(mixed)) for n, id_ in enumerate(ids)]
        written[7] = Message("shop.avro.v1", body=b"7", content_type="a/b", event_id=ids[7])
        async with sessions.begin() as tx:
            single = await Outbox(TABLE).enqueue(tx, message())
            sequences = await Outbox(TABLE).enqueue_many(tx, iter(written))
        assert sequences == sorted(set(sequences))
        assert single < sequences[0]
        async with sessions.observer.begin() as tx:
            for sequence, one in zip(sequences, written, strict=True):
                row = await Outbox(TABLE).get(tx, one.event_id, payload=True)
                assert row is not None
                assert row.sequence == sequence
                assert row.payload == (b"7" if one.body else row.payload)

    async def test_an_empty_batch_writes_nothing(self, sessions: Sessions) -> None:
        async with sessions.begin() as tx:
            assert await Outbox(TABLE).enqueue_many(tx, []) == []
        assert await count(sessions) == 0

    async def test_nothing_is_visible_before_the_commit(self, sessions: Sessions) -> None:
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, message())
            await Outbox(TABLE).enqueue_many(tx, [message(1), message(2)])
            assert await count(sessions) == 0
        assert await count(sessions) == 3

    async def test_a_rollback_leaves_nothing(self, sessions: Sessions) -> None:
        async with interrupted(), sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, message())
            await Outbox(TABLE).enqueue_many(tx, [message(1), message(2)])
            raise Interrupted
        assert await count(sessions) == 0

    async def test_a_rolled_back_savepoint_leaves_nothing(self, sessions: Sessions) -> None:
        kept, again = message(1), message(2)
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, kept)
            async with interrupted(), sessions.savepoint(tx):
                await Outbox(TABLE).enqueue_many(tx, [again, message(3)])
                raise Interrupted
            await Outbox(TABLE).enqueue(tx, again)
        assert await count(sessions) == 2
        assert await stored(sessions, kept.event_id)
        assert await stored(sessions, again.event_id)

    async def test_outside_a_transaction_is_refused(self, sessions: Sessions) -> None:
        async with sessions.outside() as connection:
            with pytest.raises(
                NotInTransaction, match=r"shop\.orders_outbox outside a transaction.*allow_autocommit"
            ):
                await Outbox(TABLE).enqueue(connection, message())
            with pytest.raises(NotInTransaction):
                await Outbox(TABLE).enqueue_many(connection, [message(), message()])
            with pytest.raises(NotInTransaction):
                await Outbox(TABLE).enqueue_many(connection, [])
        assert await count(sessions) == 0

    async def test_a_refused_message_leaves_the_transaction_usable(self, sessions: Sessions) -> None:
        refused: list[tuple[Any, type[Exception]]] = [
            (Message("a.b.v1", {"x": float("nan")}), EncodingError),
            (Message("a.b.v1", {"x": "\0"}), EncodingError),
            (Message("a.b.v1", {"x": "\ud800"}), EncodingError),
            (Message("a.b.v1", "x" * 600_000), MessageTooLarge),
            ("not a message", MessageError),
        ]
        async with sessions.begin() as tx:
            for wrong, error in refused:
                with pytest.raises(error):
                    await Outbox(TABLE).enqueue_many(tx, [message(), wrong, message()])
                with pytest.raises(error):
                    await Outbox(TABLE).enqueue(tx, wrong)
            await Outbox(TABLE).enqueue(tx, message())
        assert await count(sessions) == 1

    async def test_sql_in_values_is_stored_as_data(self, sessions: Sessions) -> None:
        written = Message("a.b.v1", {INJECTION: INJECTION}, key=INJECTION, headers={"x-a": INJECTION})
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, written, serialize_key=True)
        row = await stored(sessions, written.event_id)
        assert row is not None
        assert row.payload is not None
        assert (row.key, row.headers, json.loads(row.payload)) == (
            INJECTION,
            {"x-a": INJECTION},
            {INJECTION: INJECTION},
        )

    async def test_a_message_can_be_put_off(self, sessions: Sessions) -> None:
        now = await sessions.now()
        delayed = message(delay=timedelta(hours=1))
        longest = message(delay=timedelta(days=3660))
        exact = message(delay=timedelta(microseconds=1_000_001))
        dated = message(available_at=now + timedelta(days=2))
        overdue = message(available_at=now - timedelta(days=2))
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue_many(tx, [delayed, dated])
            for one in (overdue, longest, exact):
                await Outbox(TABLE).enqueue(tx, one)
        rows = [await stored(sessions, one.event_id) for one in (delayed, dated, overdue, longest, exact)]
        due = [row.available_at - now for row in rows if row]
        assert timedelta(hours=1) <= due[0] < timedelta(hours=1, minutes=1)
        assert due[1] == timedelta(days=2)
        assert timedelta(0) <= due[2] < timedelta(minutes=1), "the past counts as now"
        assert timedelta(days=3660) <= due[3] < timedelta(days=3660, minutes=1)
        assert timedelta(microseconds=1_000_001) <= due[4] < timedelta(minutes=1)

    async def test_a_moment_may_have_any_offset(self, sessions: Sessions) -> None:
        moment = (await sessions.now()).astimezone(UTC) + timedelta(days=2)
        offsets = [
            timedelta(microseconds=1),
            timedelta(seconds=-1),
            -timedelta(hours=23, minutes=59),
            timedelta(hours=23, minutes=59, seconds=59),
        ]
        dated = [message(available_at=moment.astimezone(timezone(offset))) for offset in offsets]
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, dated[0])
            await Outbox(TABLE).enqueue_many(tx, dated[1:])
        rows = [await stored(sessions, one.event_id) for one in dated]
        assert [row and row.available_at for row in rows] == [moment] * len(offsets)

    async def test_due_times_are_those_of_the_call_not_of_the_transaction(self, sessions: Sessions) -> None:
        single, batch = message(1), [message(2), message(3)]
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, message())
            between = await sessions.now()
            await Outbox(TABLE).enqueue(tx, single)
            await Outbox(TABLE).enqueue_many(tx, batch)
        for one in (single, *batch):
            row = await stored(sessions, one.event_id)
            assert row is not None
            assert between <= row.available_at
            assert row.created_at <= (between if sessions.transaction_start_time else row.available_at)

    async def test_tables_are_found_by_their_full_name(self, sessions: Sessions) -> None:
        event_id = uuid4()
        async with sessions.begin() as tx:
            first = await Outbox("shop.orders_outbox").enqueue(tx, message(event_id=event_id))
            second = await Outbox(TABLE).enqueue(tx, message(event_id=event_id))
        assert first == second


class AutocommitContract:
    """The opt-out, for kinds that can commit a statement by itself."""

    async def test_the_opt_out_writes_at_once(self, sessions: Sessions) -> None:
        one, many = message(1), [message(2), message(3)]
        async with sessions.outside() as connection:
            sequence = await Outbox(TABLE).enqueue(connection, one, allow_autocommit=True)
            sequences = await Outbox(TABLE).enqueue_many(connection, many, allow_autocommit=True)
            assert await Outbox(TABLE).enqueue(connection, one, allow_autocommit=True) == sequence
        assert sequence < sequences[0] < sequences[1]
        assert await count(sessions) == 3
