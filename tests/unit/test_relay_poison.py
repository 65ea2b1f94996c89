"""Messages that drive their broker away: they die in the end, and keep nobody else from it meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from outbox_core.errors import BrokerUnavailable
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.stores.memory.store import MemoryStore
from tests.integration.relay.bench import until
from tests.unit.relaying import QUICK, TABLE, put, rows

pytestmark = pytest.mark.asyncio
GOOD, BAD = "good.b.v1", "bad.b.v1"


async def test_many_messages_that_drive_it_away_do_not_shut_a_destination_for_others() -> None:
    store, arrived = MemoryStore(), 0

    class Driven:
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            nonlocal arrived
            await asyncio.sleep(0.002)  # so long as a broker takes, and several are on their way at one time
            if message.meta.topic == BAD:
                raise BrokerUnavailable("dropped")
            arrived += 1

        async def probe(self) -> None:
            pass

    await put(store, *(Message(BAD, number) for number in range(12)))
    settings = QUICK | {"backoff_base": 0.1, "backoff_cap": 2.0}
    relay = Relay(lambda: store, table=TABLE, dispatcher=Driven(), max_attempts=8, **settings)
    async with asyncio.timeout(60.0), relay:
        number = 0
        while not all(row.dead_at is not None for row in rows(store, BAD)):
            await put(store, Message(GOOD, number))
            number += 1
            await until(lambda n=number: arrived >= n)
        assert arrived > 100
        assert relay.health().reasons == ()
