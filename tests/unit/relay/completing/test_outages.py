"""What an outage costs the messages that were on their way: nothing, in whichever order their answers come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outbox_core.errors import BrokerUnavailable
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import BreakerClosed, BreakerOpened, Failed
from outbox_core.relay import Relay
from outbox_core.stores.memory.store import MemoryStore
from tests.kit.brokers import never_answer
from tests.kit.memory import TABLE, put, rows
from tests.kit.observing import Heard
from tests.kit.settings import QUICK
from tests.kit.waiting import until
from tests.simulation.scene import DISPATCH_TIMEOUT, Scene, SlowStore, play

GOOD, BAD = "good.b.v1", "bad.b.v1"


class AwayInPart:
    """A cluster, one node of which is lost at first: of the first window some messages arrive."""

    def __init__(self) -> None:
        self.unavailable = True

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        raise AssertionError("it takes many at once")

    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[BaseException | None]:
        if not self.unavailable:
            return [None] * len(messages)
        self.unavailable = False
        lost = BrokerUnavailable("the leader of the partition is unavailable")
        return [lost if at % 2 == 0 or at > 8 else None for at in range(len(messages))]

    async def probe(self) -> None:
        if self.unavailable:
            raise OSError("refused")


@pytest.mark.asyncio
async def test_an_outage_in_part_of_a_window_is_one_and_costs_no_message_an_attempt() -> None:
    store, heard = MemoryStore(), Heard()
    await put(store, *(Message(GOOD, number) for number in range(60)))
    settings = QUICK | {"max_attempts": 1}
    async with Relay(lambda: store, table=TABLE, dispatcher=AwayInPart(), observers=[heard], **settings):
        await until(lambda: all(row.published_at or row.dead_at for row in rows(store)))
    assert not [row for row in rows(store) if row.dead_at]
    assert not [event for event in heard.of(Failed) if event.charged]
    assert {row.attempts for row in rows(store)} == {1}
    assert len(heard.of(BreakerOpened)) == 1


@pytest.mark.asyncio
async def test_a_dispatch_that_lasts_through_many_outages_has_seen_one() -> None:
    """Some messages find the broker unavailable while others arrive: it opens and closes again and again."""
    store, heard = MemoryStore(), Heard()
    turns, last = [asyncio.Event() for _ in range(8)], asyncio.Event()
    seen = set[int]()

    class Single:
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            number = int(message.payload)
            if number in seen:
                return
            seen.add(number)
            await (turns[number] if number < len(turns) else last).wait()
            if number % 2 == 0 or number >= len(turns):
                raise BrokerUnavailable("reset")

        async def probe(self) -> None:
            pass

    await put(store, *(Message(GOOD, number) for number in range(40)))
    settings = QUICK | {"dispatch_timeout": 5.0}
    async with Relay(lambda: store, table=TABLE, dispatcher=Single(), observers=[heard], **settings):
        await until(lambda: len(seen) == 40)
        for number, turn in enumerate(turns):
            turn.set()
            kind = BreakerClosed if number % 2 else BreakerOpened
            await until(lambda n=number, kind=kind: len(heard.of(kind)) > n // 2)
        last.set()
        await until(lambda: all(row.published_at for row in rows(store)))
    assert not [event for event in heard.of(Failed) if event.charged]


@pytest.mark.asyncio
async def test_a_timeout_that_is_judged_when_its_outage_is_over_costs_no_message_an_attempt() -> None:
    """The half-open trial times out, and the next row arrives before that is judged."""
    store, heard, inside, is_unavailable = MemoryStore(), Heard(), 0, True

    async def dispatch(_: DispatchedMessage) -> None:
        nonlocal inside
        if is_unavailable:
            inside += 1
            try:
                await asyncio.Event().wait()
            finally:
                inside -= 1

    def one_sees_and_others_wait() -> bool:
        leased = sum(row.lock_token is not None for row in rows(store))
        return bool(heard.of(BreakerOpened)) and inside == 1 and leased > 1

    await put(store, *(Message(GOOD, number) for number in range(6)))
    async with Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=[heard], **QUICK):
        await until(one_sees_and_others_wait)
        is_unavailable = False
        await until(lambda: all(row.published_at for row in rows(store)))
    assert not [event for event in heard.of(Failed) if event.charged]
    assert {row.attempts for row in rows(store)} == {1}


@pytest.mark.asyncio
async def test_a_timeout_during_a_stop_costs_nothing_while_the_destination_is_unavailable() -> None:
    """It is not reviewed any more, but that the destination is unavailable is known."""
    store, heard, hangs = MemoryStore(), Heard(), asyncio.Event()

    async def dispatch(message: DispatchedMessage) -> None:
        if message.meta.topic == BAD:
            await hangs.wait()
            raise BrokerUnavailable("refused")
        hangs.set()
        await asyncio.Event().wait()

    settings = QUICK | {"max_attempts": 1, "backoff_base": 60.0, "backoff_cap": 60.0}
    await put(store, Message(GOOD, 1), Message(BAD, 2))
    relay = Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=[heard], **settings)
    await relay.start()
    await until(lambda: bool(heard.of(BreakerOpened)))
    await relay.stop(2.0)
    assert [event.charged for event in heard.of(Failed)] == [False, False]
    assert [(row.attempts, row.dead_at) for row in rows(store)] == [(0, None), (0, None)]


def test_those_that_time_out_right_after_one_another_are_judged_together() -> None:
    """Sent within a few milliseconds, they are three signs of one silence: the first is not charged for being first."""

    async def scenario(scene: Scene[SlowStore]) -> None:
        async with scene.relay({"bad.**": never_answer}):
            await asyncio.sleep(1.0)
            for number in range(3):
                await put(scene.store, Message(BAD, number))
                await asyncio.sleep(0.01)
            await asyncio.sleep(DISPATCH_TIMEOUT + 0.2)
            assert [row.last_error is not None for row in rows(scene.store)] == [True] * 3
            assert [row.attempts for row in rows(scene.store)] == [0] * 3

    play(SlowStore, scenario)
