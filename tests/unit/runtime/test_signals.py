"""Signals while a relay runs in the foreground: one stops it, the next hurries it, and no handler is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.stores.memory.store import MemoryStore
from tests.kit.gates import ignore
from tests.kit.memory import TABLE, put
from tests.kit.settings import QUICK
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
BOTH = (signal.SIGTERM, signal.SIGINT)


def mine(number: int, frame: FrameType | None) -> None:
    """A handler of the application's own."""


@pytest.fixture
def handlers() -> Iterator[None]:
    """Handlers of the application's own for both; after the test, those that were there."""
    before = {number: signal.signal(number, mine) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def running(relay: Relay, grace: float) -> asyncio.Task[None]:
    task = asyncio.create_task(relay.run(grace=grace))
    await until(lambda: relay.state == "running")
    return task


@pytest.mark.usefixtures("handlers")
async def test_the_handlers_that_were_there_are_back_when_it_has_stopped() -> None:
    relay = Relay(MemoryStore, table=TABLE, dispatcher=ignore, **QUICK)
    task = await running(relay, 1.0)
    assert mine not in [signal.getsignal(number) for number in BOTH]
    os.kill(os.getpid(), signal.SIGTERM)
    await task
    assert [signal.getsignal(number) for number in BOTH] == [mine, mine]


@pytest.mark.usefixtures("handlers")
async def test_one_that_was_set_through_the_loop_is_lost_and_the_signal_is_not_ignored() -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: None)
    relay = Relay(MemoryStore, table=TABLE, dispatcher=ignore, **QUICK)
    task = await running(relay, 1.0)
    await relay.stop(0.0)
    await task
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is mine


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("second", BOTH)
async def test_a_second_signal_hurries(second: signal.Signals) -> None:
    store, inside = MemoryStore(), asyncio.Event()

    async def hang(_: DispatchedMessage) -> None:
        inside.set()
        await asyncio.Event().wait()

    await put(store, Message("a.b.v1", 1))
    relay = Relay(lambda: store, table=TABLE, dispatcher=hang, **QUICK | {"dispatch_timeout": 40.0})
    task = await running(relay, 30.0)
    await inside.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: relay.state == "stopping")
    began = time.monotonic()
    os.kill(os.getpid(), second)
    await task
    assert time.monotonic() - began < 3.0


@pytest.mark.usefixtures("handlers")
async def test_a_signal_is_for_every_relay_of_the_loop() -> None:
    first, second = (Relay(MemoryStore, table=TABLE, dispatcher=ignore, **QUICK) for _ in range(2))
    tasks = [await running(first, 5.0), await running(second, 5.0)]
    third = Relay(MemoryStore, table=TABLE, dispatcher=ignore, **QUICK)
    short = await running(third, 5.0)
    await third.stop(0.0)
    await short
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.gather(*tasks)
    assert signal.getsignal(signal.SIGTERM) is mine


async def test_an_event_loop_that_knows_no_signals_runs_a_relay_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those of Windows."""

    def unknown(*_: object) -> bool:
        raise NotImplementedError

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "add_signal_handler", unknown)
    monkeypatch.setattr(loop, "remove_signal_handler", unknown)
    relay = Relay(MemoryStore, table=TABLE, dispatcher=ignore, **QUICK)
    task = await running(relay, 1.0)
    await relay.stop(0.0)
    await task
