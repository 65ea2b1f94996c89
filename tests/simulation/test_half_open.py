"""Rows that wait for a half-open trial wait quietly, however many slots there are."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from outbox_core.dispatchers.router import Router
from outbox_core.errors import BrokerUnavailable
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.stores.memory import MemoryStore
from tests.simulation.loop import VirtualLoop

TABLES = ["orders_outbox", "mails_outbox"]


@pytest.mark.parametrize("concurrency", [1, 2, 4, 16])
def test_a_half_open_trial_makes_no_pool_spin(concurrency: int) -> None:
    """On virtual time a loop that never waits is an error of its own."""
    loop = VirtualLoop()
    store = MemoryStore(lambda: datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=loop.time()))
    calls = 0

    async def hesitate(message: DispatchedMessage) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise BrokerUnavailable("unavailable for a moment")
        if calls == 2:
            await asyncio.sleep(5.0)  # the half-open trial

    async def scenario() -> None:
        relay = Relay(
            store.connect, tables=TABLES, dispatcher=Router({"**": hesitate}), concurrency=concurrency
        )
        async with store.transaction() as tx:
            for table in TABLES:
                await Outbox(table).enqueue_many(tx, [Message("a.b.v1", n) for n in range(30)])
        async with relay:
            await asyncio.sleep(30.0)
        assert calls == 2 * 30 + 1

    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
