"""What writers do to each other."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest

from outbox_core.outbox import Outbox
from tests.contract.sessions import TABLE, Interrupted, Sessions, interrupted
from tests.contract.writing import count, message, stored


class ConcurrencyContract:
    """Run by every kind of ``tx``; a subclass provides the fixture ``sessions``."""

    @pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
    async def test_a_concurrent_duplicate_gets_the_sequence_of_the_first(
        self, sessions: Sessions, batch: bool
    ) -> None:
        once = message()

        async def duplicate(tx: Any) -> int:
            if batch:
                return (await Outbox(TABLE).enqueue_many(tx, [message(1), once, message(2)]))[1]
            return await Outbox(TABLE).enqueue(tx, once)

        async with asyncio.TaskGroup() as tasks, sessions.begin() as tx:
            first = await Outbox(TABLE).enqueue(tx, once)
            second = tasks.create_task(sessions.run(duplicate))
            await sessions.until_blocked(second)
        assert second.result() == first
        assert await count(sessions) == (3 if batch else 1)

    async def test_a_duplicate_of_what_is_rolled_back_is_written(self, sessions: Sessions) -> None:
        once = message()
        async with asyncio.TaskGroup() as tasks, interrupted(), sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, once)
            second = tasks.create_task(sessions.run(lambda tx: Outbox(TABLE).enqueue(tx, once)))
            await sessions.until_blocked(second)
            raise Interrupted
        row = await stored(sessions, once.event_id)
        assert row is not None
        assert row.sequence == second.result()

    async def test_batches_that_cross_do_not_deadlock(self, sessions: Sessions) -> None:
        rng = random.Random(7)
        shared = [message(n, event_id=UUID(int=rng.getrandbits(128), version=4), key="k") for n in range(300)]
        orders = [shared, shared[::-1], rng.sample(shared, len(shared))]

        async with asyncio.TaskGroup() as tasks:
            writers = [
                tasks.create_task(sessions.run(lambda tx, batch=batch: Outbox(TABLE).enqueue_many(tx, batch)))
                for batch in orders
            ]
        by_id = [
            dict(zip([one.event_id for one in batch], writer.result(), strict=True))
            for batch, writer in zip(orders, writers, strict=True)
        ]
        assert by_id[0] == by_id[1] == by_id[2]
        assert await count(sessions) == len(shared)

    @pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
    async def test_serialized_writers_of_a_key_commit_in_sequence_order(
        self, sessions: Sessions, batch: bool
    ) -> None:
        async def write(tx: Any) -> int:
            if batch:
                pair = [message(1, key="k"), message(2, key="other")]
                return (await Outbox(TABLE).enqueue_many(tx, pair, serialize_key=True))[0]
            return await Outbox(TABLE).enqueue(tx, message(1, key="k"), serialize_key=True)

        async with asyncio.TaskGroup() as tasks, sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, message(0, key="k"), serialize_key=True)
            second = tasks.create_task(sessions.run(write))
            await sessions.until_blocked(second)
            last_of_first = await Outbox(TABLE).enqueue(tx, message(3, key="k"), serialize_key=True)
        assert second.result() > last_of_first, "the second drew its sequence before the first had committed"

    async def test_other_keys_and_other_writers_do_not_wait(self, sessions: Sessions) -> None:
        async with sessions.begin() as tx:
            await Outbox(TABLE).enqueue(tx, message(key="k"), serialize_key=True)
            async with asyncio.timeout(10), sessions.begin() as other:
                await Outbox(TABLE).enqueue(other, message(key="other"), serialize_key=True)
                await Outbox(TABLE).enqueue(
                    other, message(key="k", tenant_id=UUID(int=7)), serialize_key=True
                )
                await Outbox(TABLE).enqueue(other, message(), serialize_key=True)
                await Outbox(TABLE).enqueue(other, message(key="k"))
        assert await count(sessions) == 5
