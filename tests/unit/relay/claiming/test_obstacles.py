"""However much lies in the way of a claim, and however bad its rows are, others are not kept waiting."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from outbox_core.dispatchers.router import Router
from outbox_core.errors import BrokerUnavailable, StorageTimeout
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Dead, Failed, Reconnecting
from outbox_core.relay import Relay
from outbox_core.store import Claim, Leased, Position
from outbox_core.stores.memory.store import MemoryStore
from outbox_core.table import TableName
from tests.kit.brokers import UnavailableBroker, unavailable
from tests.kit.memory import TABLE, UnreadableStore, put, rows
from tests.kit.observing import Heard
from tests.kit.settings import QUICK
from tests.kit.tuning import begin_rescans_with_span, tune
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
GOOD, UNAVAILABLE = "good.b.v1", "away.b.v1"


class Slow(MemoryStore):
    """A claim that comes past more rows than these is not answered in time."""

    most = 500
    timeouts = 0

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        behind = [
            row
            for row in self.table(table).rows.values()
            if row.published_at is None and claim.since <= (row.available_at, row.sequence) <= claim.until
        ]
        if len(behind) > self.most and claim.blocked_topics:
            self.timeouts += 1
            raise StorageTimeout("not answered")
        return await super().claim(table, claim)


async def test_an_unavailable_destination_with_very_many_messages_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune(monkeypatch, first_span=1_000, least_span=100)
    store, arrived = Slow(), 0

    async def good(_: DispatchedMessage) -> None:
        nonlocal arrived
        arrived += 1

    async def refuse(_: DispatchedMessage) -> None:
        if not store.timeouts or not back:
            raise BrokerUnavailable("gone")

    back = False
    await put(store, *(Message(UNAVAILABLE, number) for number in range(1_500)))
    router = Router({"good.**": good, "away.**": refuse})
    async with Relay(lambda: store, table=TABLE, dispatcher=router, **QUICK):
        await until(lambda: store.timeouts > 0)
        for number in range(5):
            await put(store, Message(GOOD, number))
            await until(lambda n=number: arrived > n)
        assert not any(row.published_at for row in rows(store, UNAVAILABLE))
        back = True
        await until(lambda: all(row.published_at for row in rows(store)), 30.0)
    assert {row.attempts for row in rows(store)} == {1}


async def test_a_drain_ends_behind_very_many_messages_for_an_unavailable_destination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune(monkeypatch, first_span=400, least_span=100, quick_claim_share=0)
    store, arrived = Slow(), 0

    async def good(_: DispatchedMessage) -> None:
        nonlocal arrived
        arrived += 1

    await put(store, *(Message(UNAVAILABLE, number) for number in range(1_500)))
    await put(store, *(Message(GOOD, number) for number in range(20)))
    router = Router({"good.**": good, "away.**": unavailable})
    settings = QUICK | {"backoff_base": 60.0, "backoff_cap": 60.0}
    await Relay(lambda: store, table=TABLE, dispatcher=router, **settings).drain()
    assert store.timeouts
    assert arrived == 20


async def test_what_appears_behind_is_found_while_a_destination_is_tried_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time a message for it is searched for from the beginning; the rescan that finds others must come further."""
    tune(monkeypatch, quick_claim_share=0)
    # A whole rescan takes longer than it takes until the destination is tried again.
    begin_rescans_with_span(monkeypatch, 10)
    store, arrived, refusing = MemoryStore(), 0, UnavailableBroker(answers_probes=True)

    async def good(_: DispatchedMessage) -> None:
        nonlocal arrived
        arrived += 1

    await put(store, *(Message(UNAVAILABLE, number) for number in range(1_500)))
    for row in rows(store):
        row.available_at -= timedelta(hours=1)
    settings = QUICK | {"backoff_base": 0.1, "backoff_cap": 0.1, "batch_size": 50}
    router = Router({"good.**": good, "away.**": refusing})
    async with Relay(lambda: store, table=TABLE, dispatcher=router, **settings):
        await put(store, Message(GOOD, 1))
        await until(lambda: arrived == 1 and refusing.tries > 5)
        await put(store, Message(GOOD, 2))
        behind = rows(store, GOOD)[-1]
        behind.available_at -= timedelta(minutes=30)
        await until(lambda: arrived == 2, 15.0)


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_row_that_cannot_be_read_is_dead_and_the_others_go_on(key: str | None) -> None:
    store, heard, got = UnreadableStore(), Heard(), list[int]()

    async def dispatch(message: DispatchedMessage) -> None:
        got.append(int(message.payload))

    await put(store, *(Message(GOOD, number, key=key) for number in range(40)))
    culprit = rows(store)[17]
    store.culprit = culprit.id
    async with Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=[heard], **QUICK):
        await until(lambda: len(got) == 39 and culprit.dead_at is not None)
    assert sorted(got) == [number for number in range(40) if number != 17]
    assert str(culprit.last_error).startswith("STORAGE.UNREADABLE ")
    assert len(heard.of(Dead)) == 1
    assert {row.attempts for row in rows(store)} == {1}


@pytest.mark.parametrize("age", [0, 3600])
async def test_a_row_that_cannot_be_read_in_time_is_rescheduled_and_the_others_go_on(
    age: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old one is passed by claims that go on to what is new: only rescans find it."""
    tune(monkeypatch, max_rescan_seconds=0.3)
    store, heard, got = UnreadableStore(), Heard(), list[int]()
    store.error = StorageTimeout

    async def dispatch(message: DispatchedMessage) -> None:
        got.append(int(message.payload))

    await put(store, *(Message(GOOD, number) for number in range(40)))
    for row in rows(store):
        row.available_at -= timedelta(seconds=age)
    culprit = rows(store)[3]
    store.culprit = culprit.id
    settings = QUICK | {"backoff_base": 0.1, "backoff_cap": 600.0}
    async with Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=[heard], **settings):
        await until(lambda: bool(heard.of(Failed)), 30.0)
        store.culprit = None
        await until(lambda: len(got) == 40, 30.0)
    assert all(event.charged for event in heard.of(Failed))
    assert not heard.of(Dead)


async def test_another_row_that_is_found_in_its_place_is_not_blamed() -> None:
    store, heard, got = UnreadableStore(), Heard(), list[int]()

    class Shifting(UnreadableStore):
        async def claim(self, table: TableName, claim: Claim) -> Leased:
            if claim.without_content:
                self.culprit = None  # it was fixed meanwhile
            return await super().claim(table, claim)

    store = Shifting()

    async def dispatch(message: DispatchedMessage) -> None:
        got.append(int(message.payload))

    await put(store, *(Message(GOOD, number) for number in range(5)))
    store.culprit = rows(store)[2].id
    async with Relay(lambda: store, table=TABLE, dispatcher=dispatch, observers=[heard], **QUICK):
        await until(lambda: len(got) == 5)
    assert store.culprit is None
    assert not heard.of(Dead)
    assert {row.attempts for row in rows(store)} == {1}
    assert any("which can be read" in event.error for event in heard.of(Reconnecting))


async def test_a_slow_key_with_many_messages_keeps_no_other_waiting() -> None:
    store, got = MemoryStore(), dict[int, float]()

    async def dispatch(message: DispatchedMessage) -> None:
        if message.meta.key is not None:
            await asyncio.sleep(0.03)
        got[message.meta.sequence] = time.monotonic()

    # More than the relay would take in flight of them if it did not hold the key.
    await put(store, *(Message(GOOD, number, key="hot") for number in range(250)))
    relay = Relay(
        lambda: store, table=TABLE, dispatcher=dispatch, batch_size=2, **QUICK | {"poll_interval": 0.2}
    )
    async with relay:
        await until(lambda: len(got) > 0)
        waits = []
        for number in range(4):
            began = time.monotonic()
            await put(store, Message(GOOD, number))
            sequence = max(row.sequence for row in rows(store))
            await until(lambda last=sequence: last in got, 10.0)
            waits.append(got[sequence] - began)
        hot = sorted(row.sequence for row in rows(store) if row.record.key)
        delivered = [sequence for sequence in got if sequence in hot]
        assert delivered == hot[: len(delivered)], "out of order"
        assert len(delivered) < 250, "the key was not slow"
        await until(lambda: all(row.published_at for row in rows(store)), 30.0)
    # The first may come while it is not yet known that the key is slow.
    assert max(waits[1:]) < 1.5
    assert [sequence for sequence in got if sequence in hot] == hot
    assert {row.attempts for row in rows(store)} == {1}


async def test_more_held_keys_than_fit_into_a_claim_keep_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune(monkeypatch, max_held_keys_in_claim=20)
    store, got = MemoryStore(), list[object]()
    held, followers = 100, 30

    async def dispatch(message: DispatchedMessage) -> None:
        if message.meta.key is not None and message.payload == b"0":
            raise RuntimeError("not yet")
        got.append(message.payload)

    await put(store, *(Message(GOOD, 0, key=f"k{number}") for number in range(held)))
    settings = QUICK | {"backoff_base": 30.0, "backoff_cap": 30.0}
    async with Relay(lambda: store, table=TABLE, dispatcher=dispatch, batch_size=10, **settings):
        await until(lambda: all(row.last_error for row in rows(store)))
        keyed = (Message(GOOD, 1, key=f"k{number}") for number in range(held) for _ in range(followers))
        await put(store, *keyed)
        for number in range(5):
            await put(store, Message(GOOD, number + 2))
            await until(lambda n=number: len(got) > n, 5.0)
    assert sorted(map(str, got)) == [str(str(number + 2).encode()) for number in range(5)]


async def test_a_place_is_so_many_rows_on() -> None:
    store = MemoryStore()
    await put(store, *(Message(GOOD, number) for number in range(10)))
    places: list[Position] = sorted((row.available_at, row.sequence) for row in rows(store))
    assert await store.position_after(TABLE, places[2], 3) == places[5]
    assert await store.position_after(TABLE, places[2], 8) is None
