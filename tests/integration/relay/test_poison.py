"""A message that drives its broker away is dead in the end, and the others get through."""

from __future__ import annotations

import asyncio
import json

import pytest

from outbox_core.errors import BrokerUnavailable
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Dead
from tests.integration.relay.bench import Bench
from tests.kit.brokers import Broker
from tests.kit.settings import FEW_ATTEMPTS
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


class Fragile(Broker):
    """A poison message makes it drop the connection, and everything in flight with it; it is back at once."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = asyncio.Event()
        self.delivered: list[int] = []

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.calls[message.payload] += 1
        connection = self.dropped
        if message.payload == b'"poison"':
            await asyncio.sleep(0.005)
            self.dropped.set()
            self.dropped = asyncio.Event()
        try:
            async with asyncio.timeout(0.02):
                await connection.wait()
        except TimeoutError:
            self.delivered.append(json.loads(message.payload))
        else:
            raise BrokerUnavailable("the connection was closed by the broker")


class ProbingFragile(Fragile):
    async def probe(self) -> None: ...


@pytest.mark.parametrize("kind", [Fragile, ProbingFragile])
@pytest.mark.parametrize("key", [None, "k"])
async def test_a_poison_message_is_dead_in_the_end_and_the_others_get_through(
    bench: Bench, kind: type[Fragile], key: str | None
) -> None:
    broker = kind()
    await bench.enqueue(*range(5))
    await bench.enqueue("poison", key=key)
    await bench.enqueue(*range(5, 40))
    count = 40
    async with bench.relay(broker, **FEW_ATTEMPTS | {"max_attempts": 4, "concurrency": 8}):

        async def dead() -> bool:
            # Who cannot be probed is known to be back by a delivery alone, so there must be something to deliver.
            nonlocal count
            await bench.enqueue(count)
            count += 1
            return bool(bench.heard.of(Dead))

        await until(dead, 30)
        assert await bench.settled(30) == {"published": count, "dead": 1}
    assert sorted(set(broker.delivered)) == list(range(count))
    (poison,) = [row for row in await bench.rows() if row["state"] == "dead"]
    assert poison["content"] == '"poison"'
    assert poison["attempts"] == 4
    assert poison["last_error"].startswith("PROVIDER.UNAVAILABLE ")
    assert len(bench.heard.of(Dead)) == 1
    assert all(row["attempts"] <= 2 for row in await bench.rows() if row["state"] == "published")


async def test_a_lone_poison_message_is_dead_when_the_broker_answers_its_probes(bench: Bench) -> None:
    await bench.enqueue("poison")
    async with bench.relay(ProbingFragile(), **FEW_ATTEMPTS):
        assert await bench.settled(40) == {"dead": 1}
