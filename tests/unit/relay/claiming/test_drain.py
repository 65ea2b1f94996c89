"""A drain ends when nothing is due any more, and not before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from tests.kit.brokers import UnavailableBroker
from tests.kit.memory import TABLE, KeptStore, put, rows
from tests.kit.tuning import tune
from tests.simulation.scene import GOOD, UNAVAILABLE, Passing, Scene, play

TOPIC = "a.b.v1"


@pytest.mark.asyncio
@pytest.mark.parametrize(("others", "batch_size"), [(0, 1), (150, 100)])
async def test_it_waits_for_a_key_whose_second_message_was_due_first(others: int, batch_size: int) -> None:
    """They are not in one claim, and the second one goes back: its key is held for a moment."""
    store, arrived = KeptStore(), list[object]()

    async def deliver(message: DispatchedMessage) -> None:
        arrived.append(message.json())

    await put(store, Message(TOPIC, "first", key="k"), Message(TOPIC, "second", key="k"))
    await put(store, *(Message(TOPIC, number) for number in range(others)))
    first, second, *_ = rows(store)
    second.available_at -= timedelta(seconds=2)
    for row in rows(store)[2:]:
        row.available_at -= timedelta(seconds=1)
    assert first.available_at > second.available_at
    relay = Relay(store.connect, table=TABLE, dispatcher=deliver, batch_size=batch_size)
    assert await relay.drain(timeout=20) == others + 2
    assert [one for one in arrived if isinstance(one, str)] == ["first", "second"]


def test_it_waits_for_the_end_of_a_rescan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind could not be read in time, and is left to slices."""
    tune(monkeypatch, first_span=800, least_span=20)

    async def scenario(scene: Scene[Passing]) -> None:
        await put(scene.store, *(Message(UNAVAILABLE, number) for number in range(900)))
        for row in rows(scene.store):
            row.available_at -= timedelta(hours=2)
        await put(scene.store, Message(GOOD, 1))
        for row in rows(scene.store, GOOD):
            row.available_at -= timedelta(hours=1)
        await scene.relay({"away.**": UnavailableBroker()}).drain(timeout=600)
        assert len(scene.store.broken_off) > 1, "what lies behind was read in time"
        assert rows(scene.store, GOOD)[0].published_at is not None

    play(Passing, scenario)
