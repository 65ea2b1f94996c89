"""Brokers that answer a probe and take nothing: messages that drive one away die in the end, and keep no other from
it meanwhile; if it says itself that it takes nothing, no message pays for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pytest

from outbox_core.errors import BrokerExhausted, BrokerUnavailable
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.store import Claim, Leased
from outbox_core.stores.memory.store import MemoryStore
from outbox_core.table import TableName
from tests.kit.memory import OTHER, TABLE, put, rows
from tests.kit.settings import QUICK
from tests.simulation.loop import VirtualLoop

GOOD, BAD = "good.b.v1", "bad.b.v1"
BAD_ONES = 12
TRY_SECONDS = 0.1
"""Between two tries of a destination that answers its probe each time."""


class Scene:
    """A destination that is driven away by some messages and answers its probe each time, and how long others wait."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._loop = loop
        self._chance = chance = Random(seed)

        class Hesitant(MemoryStore):
            leased = 0

            async def claim(self, table: TableName, claim: Claim) -> Leased:
                # Claims of one table take longer than those of the other.
                await asyncio.sleep(chance.expovariate(100.0) if table == TABLE else 0.03)
                found = await super().claim(table, claim)
                self.leased += found.count
                return found

        self.store = Hesitant(lambda: datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=loop.time()))
        self.waits: list[float] = []
        self.tries: list[float] = []
        """When bad ones were dispatched."""
        self.is_exhausted = False
        self.takes = 0.004
        """Seconds, on the average, that a dispatch takes."""
        self._arrived = asyncio.Event()

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        if message.meta.topic == BAD:
            self.tries.append(self._loop.time())
        await asyncio.sleep(self._chance.expovariate(1 / self.takes))
        if self.is_exhausted:
            self.tries.append(self._loop.time())
            raise BrokerExhausted("no storage")
        if message.meta.topic == BAD:
            raise BrokerUnavailable("dropped")
        self._arrived.set()

    async def probe(self) -> None:
        pass

    async def send_good_one(self, table: TableName = TABLE) -> None:
        self._arrived.clear()
        began = self._loop.time()
        await put(self.store, Message(GOOD, 1), table=table)
        await self._arrived.wait()
        self.waits.append(self._loop.time() - began)

    @property
    def all_dead(self) -> bool:
        return all(row.dead_at is not None for row in rows(self.store, BAD))


def play(scenario: Callable[[Scene], Awaitable[None]], seed: int) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        await scenario(Scene(loop, seed))

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("seed", [0, 18, 27, 31, 38, 43])
def test_many_poison_messages_do_not_block_a_destination_for_others(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        await put(scene.store, *(Message(BAD, number) for number in range(BAD_ONES)))
        settings = QUICK | {"backoff_base": TRY_SECONDS, "backoff_cap": 2.0}
        relay = Relay(lambda: scene.store, table=TABLE, dispatcher=scene, max_attempts=8, **settings)
        async with asyncio.timeout(60.0), relay:
            while not scene.all_dead:
                await scene.send_good_one()
            assert relay.health().reasons == ()
        assert len(scene.waits) > 100
        # At worst every one of them tries first, once, and is claimed, dispatched and asked after for that.
        assert max(scene.waits) < BAD_ONES * TRY_SECONDS + 1.0

    play(scenario, seed)


def test_a_poison_message_is_tried_less_and_less_often() -> None:
    """Not only when it is charged: the destination may be unavailable in earnest although it answers probes."""

    async def scenario(scene: Scene) -> None:
        await put(scene.store, Message(BAD, 0))
        async with Relay(lambda: scene.store, table=TABLE, dispatcher=scene, backoff_jitter=0.0):
            await asyncio.sleep(20.0)
        waits = [later - earlier for earlier, later in pairwise(scene.tries)]
        # Three times at no message's cost, then as a suspect that pays for each, again from the shortest wait on.
        assert [round(wait) for wait in waits] == [1, 3, 5, 1, 2, 4], waits

    play(scenario, 0)


@pytest.mark.parametrize("first", [TABLE, OTHER])
def test_poison_messages_of_one_table_do_not_block_a_destination_for_another(first: TableName) -> None:
    """Whichever of them is quicker to claim."""
    tables = [first, OTHER if first == TABLE else TABLE]

    async def scenario(scene: Scene) -> None:
        await put(scene.store, *(Message(BAD, number) for number in range(40)), table=tables[0])
        async with Relay(lambda: scene.store, tables=tables, dispatcher=scene, backoff_jitter=0.0):
            for _ in range(60):
                await scene.send_good_one(tables[1])
                await asyncio.sleep(1.0)
        assert len(scene.tries) > 100
        assert max(scene.waits) < 10.0

    play(scenario, 0)


def test_a_backlog_is_not_leased_over_and_over_while_one_after_the_other_tries() -> None:
    async def scenario(scene: Scene) -> None:
        scene.takes = 0.05  # long enough for several claims
        await put(scene.store, *(Message(BAD, number) for number in range(1_000)))
        async with Relay(lambda: scene.store, table=TABLE, dispatcher=scene, backoff_jitter=0.0):
            await asyncio.sleep(60.0)
        assert 50 < len(scene.tries) < 200
        assert scene.store.leased < 5_000, "they were leased again and again"

    play(scenario, 0)


def test_a_broker_that_says_it_takes_nothing_costs_no_message_its_attempts() -> None:
    """For eight hours, with its probe answered all the time."""

    async def scenario(scene: Scene) -> None:
        scene.is_exhausted = True
        await put(scene.store, *(Message(GOOD, number) for number in range(20)))
        async with Relay(lambda: scene.store, table=TABLE, dispatcher=scene, backoff_jitter=0.0):
            await asyncio.sleep(8 * 3600.0)
            assert [row.attempts for row in rows(scene.store)] == [0] * 20
            assert 8 * 3600 / 10 < len(scene.tries) < 8 * 3600 / 4
            scene.is_exhausted = False
            await scene.send_good_one()
            await asyncio.sleep(30.0)
        assert all(row.published_at is not None and row.attempts == 1 for row in rows(scene.store))

    play(scenario, 0)
