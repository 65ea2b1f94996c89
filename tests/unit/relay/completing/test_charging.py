"""Who is charged for what goes wrong: no message for an unavailable destination, and in the end the one at fault."""

from __future__ import annotations

import asyncio

import pytest

from outbox_core.dispatcher import Dispatcher
from outbox_core.errors import BrokerUnavailable, PermanentError
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import BreakerClosed, BreakerOpened, Claimed, Failed
from outbox_core.relay import Relay
from outbox_core.stores.memory.store import MemoryStore
from tests.kit.brokers import HangingBroker, UnavailableBroker
from tests.kit.memory import OTHER, TABLE, put, rows
from tests.kit.observing import Heard
from tests.kit.settings import QUICK
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
GOOD, BAD = "good.b.v1", "bad.b.v1"


class TwoWays:
    """Sends bad messages to the first destination, all others to the second."""

    def __init__(self, first: UnavailableBroker, second: UnavailableBroker) -> None:
        self.first, self.second = first, second

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        raise AssertionError("it routes")

    def route(self, topic: str) -> Dispatcher:
        return self.first if topic == BAD else self.second


async def test_refusals_end_no_outage_and_make_no_suspects() -> None:
    """A message may be refused on the way to the broker, which says nothing of the broker."""
    store, heard = MemoryStore(), Heard()

    async def dispatch(message: DispatchedMessage) -> None:
        raise PermanentError("too large") if message.meta.topic == BAD else BrokerUnavailable("refused")

    await put(store, *(Message(GOOD, number) for number in range(3)))
    relay = Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=[heard], max_attempts=5, **QUICK)
    async with relay:
        for number in range(12):
            await put(store, Message(BAD, number))
            await until(lambda n=number: sum(row.dead_at is not None for row in rows(store, BAD)) > n)
    assert len(heard.of(BreakerOpened)) == 1
    assert heard.of(BreakerClosed) == []
    assert [(row.attempts, row.dead_at) for row in rows(store, GOOD)] == [(0, None)] * 3


async def test_after_an_answered_probe_a_refusal_is_the_brokers_own() -> None:
    store, heard = MemoryStore(), Heard()

    class Back:
        unavailable = True

        async def dispatch(self, message: DispatchedMessage, /) -> None:
            if self.unavailable:
                raise BrokerUnavailable("refused")
            raise PermanentError("no such topic")

        async def probe(self) -> None:
            self.unavailable = False

    await put(store, Message(GOOD, 1), Message(GOOD, 2))
    async with Relay(lambda: store, table=TABLE, dispatcher=Back(), observers=[heard], **QUICK):
        await until(lambda: all(row.dead_at is not None for row in rows(store)))
    assert len(heard.of(BreakerClosed)) == 1


async def test_a_trial_that_hangs_is_charged_to_no_message() -> None:
    store, heard = MemoryStore(), Heard()
    calls = 0

    async def dispatch(_: DispatchedMessage) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise BrokerUnavailable("refused")
        await asyncio.Event().wait()

    await put(store, Message(GOOD, 1))
    relay = Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=[heard], max_attempts=2, **QUICK)
    async with relay:
        await until(lambda: len(heard.of(Failed)) >= 4)
        assert {event.charged for event in heard.of(Failed)} == {False}
    assert [row.dead_at for row in rows(store)] == [None]


async def test_what_fails_by_itself_is_no_sign_of_life() -> None:
    """Otherwise silence would never add up to an outage, and the messages would pay for it."""
    store, heard = MemoryStore(), Heard()

    async def dispatch(message: DispatchedMessage) -> None:
        if message.meta.topic == BAD:
            raise ValueError("cannot be encoded")
        await asyncio.Event().wait()

    await put(store, Message(GOOD, 1), Message(GOOD, 2), *(Message(BAD, number) for number in range(5)))
    relay = Relay(
        lambda: store, table=TABLE, dispatcher=dispatch, observers=[heard], max_attempts=1000, **QUICK
    )
    async with relay:
        await until(lambda: bool(heard.of(BreakerOpened)))
        assert all(row.attempts <= 3 for row in rows(store, GOOD))


async def test_a_suspect_comes_to_its_turn_while_another_table_is_busy() -> None:
    store, arrived = MemoryStore(), asyncio.Event()

    class Driven:
        """One message drives the broker away; it is back at once."""

        async def dispatch(self, message: DispatchedMessage, /) -> None:
            if message.meta.topic == BAD:
                raise BrokerUnavailable("dropped")
            await asyncio.sleep(0.005 * (1 + message.meta.sequence % 3))
            if str(message.meta.table) == str(TABLE):
                arrived.set()

        async def probe(self) -> None:
            pass

    await put(store, Message(BAD, 0))
    relay = Relay(
        lambda: store,
        tables=[TABLE, OTHER],
        dispatcher=Driven(),
        concurrency=8,
        max_attempts=5,
        **QUICK | {"dispatch_timeout": 5.0},
    )

    async def keep_busy() -> None:
        while True:
            await put(store, *(Message(GOOD, number) for number in range(50)), table=OTHER)
            await asyncio.sleep(0.02)

    busy = asyncio.create_task(keep_busy())
    try:
        async with relay:
            await until(lambda: rows(store, BAD)[0].dead_at is not None, 20.0)
            await put(store, Message(GOOD, 1))
            async with asyncio.timeout(5.0):
                await arrived.wait()
    finally:
        busy.cancel()
    assert rows(store, BAD)[0].attempts == 5


async def test_keys_of_an_unavailable_destination_are_not_claimed_again_and_again() -> None:
    store, heard = MemoryStore(), Heard()
    router = TwoWays(UnavailableBroker(), UnavailableBroker())
    await put(store, *(Message(BAD, number, key=f"k{number}") for number in range(50)))
    async with Relay(lambda: store, table=TABLE, dispatcher=router, observers=[heard], **QUICK):
        await until(lambda: router.first.probes >= 20)
        assert sum(event.rows for event in heard.of(Claimed)) <= 50 + 1
        router.first.unavailable = False
        await until(lambda: all(row.published_at is not None for row in rows(store)), 5.0)


async def test_a_row_dispatched_before_an_outage_proves_nothing_when_it_times_out() -> None:
    """Answers that went with a connection: the broker is back, and those that waited for them are not to blame."""
    store, heard = MemoryStore(), Heard()

    class Dropped:
        lost = True

        async def dispatch(self, message: DispatchedMessage, /) -> None:
            if message.meta.topic == BAD and self.lost:
                self.lost = False
                raise BrokerUnavailable("dropped")
            if self.lost:
                await asyncio.Event().wait()

        async def probe(self) -> None:
            pass

    settings = QUICK | {"dispatch_timeout": 1.0}
    async with Relay(
        lambda: store, table=TABLE, dispatcher=Dropped(), observers=[heard], max_attempts=50, **settings
    ):
        for number in range(6):
            await put(store, Message(GOOD, number))
            await asyncio.sleep(0.1)
        await put(store, Message(BAD, 0))
        await until(lambda: all(row.published_at is not None for row in rows(store)))
    assert len(heard.of(BreakerOpened)) == 1
    # Only one that timed out after all was well again may have been taken for a failure of its own.
    assert sum(event.charged for event in heard.of(Failed)) <= 2


async def test_after_an_outage_by_silence_the_count_begins_anew() -> None:
    store, heard = MemoryStore(), Heard()

    class Silent:
        silent = True

        async def dispatch(self, message: DispatchedMessage, /) -> None:
            if self.silent or message.json() == "hangs":
                await asyncio.Event().wait()
            raise PermanentError("no such topic")

        async def probe(self) -> None:
            if self.silent:
                raise OSError("silent")

    silent = Silent()
    await put(store, *(Message(GOOD, number) for number in range(4)))
    relay = Relay(lambda: store, table=TABLE, dispatcher=silent, observers=[heard], **QUICK)
    async with relay:
        await until(lambda: bool(heard.of(BreakerOpened)))
        silent.silent = False
        await until(lambda: bool(heard.of(BreakerClosed)) and all(row.dead_at for row in rows(store)))
        before = len(heard.of(BreakerOpened))
        await put(store, Message(GOOD, "hangs"))
        await until(lambda: any(event.charged for event in heard.of(Failed)))
        assert len(heard.of(BreakerOpened)) == before


async def test_a_table_that_had_nothing_for_a_destination_reads_again_when_that_is_back() -> None:
    """Its rows were passed over meanwhile, because another table knew their destination to be unavailable."""
    store = MemoryStore()
    router = TwoWays(UnavailableBroker(), UnavailableBroker(unavailable=False))
    await put(store, Message(BAD, 1))
    settings = QUICK | {"poll_interval": 30.0}
    async with Relay(lambda: store, tables=[TABLE, OTHER], dispatcher=router, **settings):
        await until(lambda: router.first.probes >= 2)
        await put(store, Message(BAD, 1), table=OTHER)
        await put(store, Message(GOOD, 1), table=OTHER)
        await until(lambda: rows(store, GOOD, OTHER)[0].published_at is not None)
        seen = router.first.probes
        await until(lambda: router.first.probes >= seen + 20)  # it does not poll for work any more by then
        router.first.unavailable = False
        await until(lambda: rows(store, BAD, OTHER)[0].published_at is not None, 5.0)


class Flapping:
    """Answers three probes in an outage, and not the messages after them, so that the one message is suspected; then it
    is unavailable in earnest, until it is back."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs, self.back, self.calls, self.probes = hangs, False, 0, 0

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.calls += 1
        if self.back:
            return
        if self.hangs and self.calls > 3:
            await asyncio.Event().wait()
        raise BrokerUnavailable("refused")

    async def probe(self) -> None:
        self.probes += 1
        if self.probes > 3 and not self.back:
            raise OSError("refused")


@pytest.mark.parametrize("hangs", [False, True])
async def test_an_outage_costs_a_suspect_one_attempt_for_each_answered_probe(hangs: bool) -> None:
    store, heard, broker = MemoryStore(), Heard(), Flapping(hangs=hangs)
    await put(store, Message(GOOD, 1))
    relay = Relay(lambda: store, table=TABLE, dispatcher=broker, observers=[heard], max_attempts=3, **QUICK)
    async with relay:
        await until(lambda: any(event.charged for event in heard.of(Failed)))
        await until(lambda: broker.probes >= 30)
        assert [(row.attempts, row.dead_at) for row in rows(store)] == [(1, None)]
        assert broker.calls == 4
        broker.back = True
        await until(lambda: all(row.published_at is not None for row in rows(store)))
    assert sum(event.charged for event in heard.of(Failed)) == 1


async def test_a_suspect_that_finds_its_destination_unavailable_is_reported_as_an_outage() -> None:
    """All was well since it was suspected, so that is news."""
    store, heard = MemoryStore(), Heard()

    class Driven:
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            if message.meta.topic == BAD:
                raise BrokerUnavailable("dropped")

        async def probe(self) -> None:
            pass

    relay = Relay(lambda: store, table=TABLE, dispatcher=Driven(), observers=[heard], max_attempts=4, **QUICK)
    async with relay:
        await put(store, Message(BAD, 0))
        number = 0
        while rows(store, BAD)[0].dead_at is None:
            number += 1
            await put(store, Message(GOOD, number))
            await until(lambda: all(row.published_at is not None for row in rows(store, GOOD)))
    charged = sum(event.charged for event in heard.of(Failed)) + 1
    assert charged == rows(store, BAD)[0].attempts == 4
    assert len(heard.of(BreakerOpened)) >= charged


async def test_a_destination_whose_probe_hangs_keeps_no_other_from_its_verdict() -> None:
    """One after the other their probes would take 8 s, and leases would end meanwhile."""
    store, heard = MemoryStore(), Heard()

    class Many(HangingBroker):
        def __init__(self) -> None:
            self.brokers = {f"t{number}.b.v1": HangingBroker() for number in range(40)}

        def route(self, topic: str) -> Dispatcher:
            return self.brokers[topic]

    router = Many()
    await put(store, *(Message(topic, 1) for topic in router.brokers))
    async with Relay(lambda: store, table=TABLE, dispatcher=router, observers=[heard], **QUICK):
        await until(lambda: len(heard.of(BreakerOpened)) == len(router.brokers), 3.0)
        assert {event.charged for event in heard.of(Failed)} <= {False}
