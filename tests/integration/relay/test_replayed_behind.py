"""A replayed letter waits for nobody, also not for a later message of its key that is not due."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outbox_core.dead_letters import DeadLetters, Filter
from outbox_core.errors import PermanentError
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Dead
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


async def test_a_replayed_letter_is_not_held_by_a_later_message_of_its_key(bench: Bench) -> None:
    arrived: list[object] = []

    async def dispatch(message: DispatchedMessage) -> None:
        arrived.append(message.json())
        if message.json() == "letter" and not message.meta.replays:
            raise PermanentError("no")

    async with PostgresAdminStore.connect(bench.dsn, TABLE) as admin_store:
        letters = DeadLetters(admin_store, TABLE)
        async with bench.relay(dispatch):
            await bench.enqueue("letter", key="k")
            await until(lambda: bool(bench.heard.of(Dead)))
            await bench.enqueue("tomorrow", key="k", delay=timedelta(days=1))
            await bench.enqueue("behind it", key="k")
            await bench.enqueue("other")
            await until(lambda: arrived[-1] == "other")  # so that the key is held by now
            plan = await letters.plan(Filter(topic="shop.**"))
            assert (await letters.replay(plan, actor="somebody", reason="a test")).changed == 1
            await until(lambda: arrived.count("letter") == 2, 20.0)
    assert arrived == ["letter", "other", "letter"]
