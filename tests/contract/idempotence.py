"""What happens when an ``event_id`` comes again."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from outbox_core.errors import EventIdConflict
from outbox_core.message import ABSENT, Message
from outbox_core.outbox import Outbox
from tests.contract.sessions import TABLE, Interrupted, Sessions, interrupted
from tests.contract.writing import count, message, stored

SECRET = "4111-1111-1111-1111"
OTHER_TENANT = UUID("22222222-2222-2222-2222-222222222222")


class IdempotenceContract:
    """Run by every kind of ``tx``; a subclass provides the fixture ``sessions``."""

    async def test_again_in_the_same_transaction(self, sessions: Sessions) -> None:
        once = message()
        async with sessions.begin() as tx:
            first = await Outbox(TABLE).enqueue(tx, once)
            assert await Outbox(TABLE).enqueue(tx, once) == first
            assert await Outbox(TABLE).enqueue_many(tx, [once, once]) == [first, first]
        assert await count(sessions) == 1

    async def test_again_in_another_transaction(self, sessions: Sessions) -> None:
        once = message()
        async with sessions.begin() as tx:
            first = await Outbox(TABLE).enqueue(tx, once)
        async with sessions.begin() as tx:
            assert await Outbox(TABLE).enqueue(tx, once) == first
        assert await count(sessions) == 1

    async def test_again_inside_a_batch(self, sessions: Sessions) -> None:
        a, b = message(1), message(2)
        async with sessions.begin() as tx:
            sequences = await Outbox(TABLE).enqueue_many(tx, [a, b, a, b, b])
        assert sequences[0] < sequences[1]
        assert sequences == [sequences[i] for i in (0, 1, 0, 1, 1)]
        assert await count(sessions) == 2

    async def test_old_and_new_in_one_batch(self, sessions: Sessions) -> None:
        old, new = message(1, event_id=uuid4()), [message(n, event_id=uuid4()) for n in range(5)]
        async with sessions.begin() as tx:
            first = await Outbox(TABLE).enqueue(tx, old)
        async with sessions.begin() as tx:
            sequences = await Outbox(TABLE).enqueue_many(tx, [*new[:2], old, *new[2:], old])
        assert sequences[2] == sequences[6] == first
        drawn = sequences[:2] + sequences[3:6]
        assert drawn == sorted(set(drawn))
        for one, sequence in zip(new, drawn, strict=True):
            row = await stored(sessions, one.event_id)
            assert row is not None
            assert row.sequence == sequence

    async def test_a_repetition_changes_nothing_that_was_stored(self, sessions: Sessions) -> None:
        event_id = uuid4()
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, message(event_id=event_id, headers={"x-try": "1"}))
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, message(event_id=event_id, headers={"x-try": "2"}))
        row = await stored(sessions, event_id)
        assert row is not None
        assert row.headers == {"x-try": "1"}

    @pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
    async def test_other_content_is_a_conflict_that_tells_nothing(
        self, sessions: Sessions, batch: bool
    ) -> None:
        kept = Message("shop.order.placed.v1", {"card": SECRET}, tenant_id=OTHER_TENANT, key="k-secret")
        others = [
            replace(kept, payload={"card": SECRET + "2"}),
            replace(kept, key="k-secret2"),
            replace(kept, key=None),
            replace(kept, tenant_id=UUID(int=0)),
            replace(kept, topic="shop.order.hidden.v1"),
            replace(kept, payload=ABSENT, body=b'{"card":"x"}', content_type="text/hidden"),
        ]
        async with sessions.begin() as tx:
            sequence = await Outbox(TABLE).enqueue(tx, kept)
        for other in others:
            async with sessions.begin() as tx:
                sent = [message(1), other, message(2)] if batch else [other]
                async with interrupted(), sessions.savepoint(tx):
                    with pytest.raises(EventIdConflict) as conflict:
                        await Outbox(TABLE).enqueue_many(tx, sent)
                    raise Interrupted
                assert await Outbox(TABLE).enqueue(tx, kept) == sequence
            text = f"{conflict.value!r} {conflict.value} {vars(conflict.value)}"
            assert str(kept.event_id) in text
            assert "give a new message a new event_id" in text
            for hidden in (SECRET, "k-secret", str(OTHER_TENANT), "order.placed", "hidden"):
                assert hidden not in text
        assert await count(sessions) == 1

    async def test_a_conflict_inside_a_batch_writes_nothing(self, sessions: Sessions) -> None:
        event_id = uuid4()
        async with sessions.begin() as tx:
            with pytest.raises(EventIdConflict, match=str(event_id)):
                await Outbox(TABLE).enqueue_many(
                    tx, [message(0), message(1, event_id=event_id), message(2, event_id=event_id)]
                )
            await Outbox(TABLE).enqueue(tx, message())
        assert await count(sessions) == 1
