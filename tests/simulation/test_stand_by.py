"""A relay that cannot claim waits quietly, however many hints come."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.outbox import Outbox
from outbox_core.relay import Relay
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from tests.simulation.loop import VirtualLoop

TABLE = TableName("public", "orders_outbox")


def test_hints_do_not_make_a_stand_by_spin() -> None:
    """On virtual time a loop that never waits is an error of its own."""
    loop = VirtualLoop()
    store = MemoryStore(lambda: datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=loop.time()))
    delivered: list[DispatchedMessage] = []

    async def deliver(message: DispatchedMessage) -> None:
        delivered.append(message)

    async def scenario() -> None:
        election = store.election(TABLE)
        term = await election.campaign()
        assert term is not None
        relay = Relay(store.connect, table=TABLE, dispatcher=deliver)
        running = asyncio.ensure_future(relay.run(signals=False))
        async with store.transaction() as tx:
            await Outbox(TABLE, hint=False).enqueue(tx, Message("a.b.v1", 1, key="k"))
        for _ in range(50):
            store.database.notify(TABLE)
            assert await election.heartbeat(term)
            await asyncio.sleep(0.1)
        assert delivered == []
        await election.resign(term)
        await asyncio.sleep(3.0)
        assert len(delivered) == 1
        await relay.stop(1.0)
        await running

    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
