"""A run reports what it ended with, also when more goes wrong meanwhile; and it ends in the shortest time asked for."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import Any

import pytest

from outbox_core.errors import RelayFailed
from outbox_core.relay import Relay
from outbox_core.runtime.supervision import ended_within
from outbox_core.stores.memory.store import MemoryStore
from tests.kit.brokers import ManagedBroker
from tests.kit.memory import TABLE
from tests.kit.settings import QUICK
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


class Unclosable(ManagedBroker):
    async def __aexit__(self, *error: object) -> None:
        raise OSError("10 messages were not flushed to amqp://user:CANARY@host")


def relay_of(dispatcher: ManagedBroker, store: type[MemoryStore] = MemoryStore) -> Relay:
    return Relay(store, table=TABLE, dispatcher=dispatcher, **QUICK)


class Dying(MemoryStore):
    async def tick(self, table: object) -> Any:
        raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("crash", [True, False])
async def test_an_error_of_the_closing_does_not_hide_what_ended_the_run(crash: bool) -> None:
    """Be it a crash of a task of its own, or raised by the work."""
    relay = relay_of(Unclosable(), MemoryStore if crash else Dying)
    running = asyncio.create_task(relay.run(signals=False))
    if crash:
        await until(lambda: relay.state == "running")
        assert relay._run is not None
        relay._run._shutdown.fail(ZeroDivisionError("a bug"))
    async with asyncio.timeout(5.0):
        with pytest.raises(ZeroDivisionError) as raised:
            await running
    (note,) = raised.value.__notes__
    assert note.startswith(
        "closing the dispatcher failed, too: UNKNOWN.OSERROR OSError: 10 messages were not"
    )
    assert "CANARY" not in note


async def test_what_ends_a_run_in_the_foreground_is_raised_there_and_not_in_wait() -> None:
    relay = relay_of(ManagedBroker())
    running = asyncio.create_task(relay.run(signals=False))
    await until(lambda: relay.state == "running")
    waiting = asyncio.create_task(relay.wait())
    assert relay._run is not None
    relay._run._shutdown.fail(ZeroDivisionError("a bug"))
    async with asyncio.timeout(5.0):
        with pytest.raises(ZeroDivisionError):
            await running
        await waiting
        await relay.wait()
    assert relay.state == "stopped"


async def test_an_error_of_the_closing_alone_is_raised() -> None:
    relay = relay_of(Unclosable())
    running = asyncio.create_task(relay.run(signals=False))
    await until(lambda: relay.state == "running")
    await relay.stop(0.0)
    with pytest.raises(OSError, match="10 messages were not flushed"):
        await running


async def test_a_cancelled_run_logs_what_its_stop_ended_with(caplog: pytest.LogCaptureFixture) -> None:
    relay = relay_of(Unclosable())
    running = asyncio.create_task(relay.run(signals=False))
    await until(lambda: relay.state == "running")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gc.collect()
    said = [(record.name, record.levelno, record.message) for record in caplog.records]
    text = "the relay was cancelled, and its stop ended with OSError; it is stopped"
    assert ("outbox_core.relay", logging.ERROR, text) in said
    assert "never retrieved" not in caplog.text


async def test_a_task_that_fails_in_the_moment_its_waiter_is_cancelled_has_its_error_retrieved() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def fail() -> None:
        raise OSError("refused")

    async def wait() -> None:
        await ended_within(asyncio.create_task(fail()), 5.0, "it")

    async def both() -> None:
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)  # it waits now, and the task that it waits for is about to run
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()

    await both()
    gc.collect()
    assert complaints == []


async def test_an_opening_that_is_cancelled_from_within_is_reported_as_such() -> None:
    class Cancelled(ManagedBroker):
        async def __aenter__(self) -> ManagedBroker:
            raise asyncio.CancelledError("a future of its own")

    with pytest.raises(RelayFailed, match="__aenter__ ended with CancelledError") as raised:
        await relay_of(Cancelled()).start()
    assert "did not start within" not in str(raised.value)


async def test_a_second_stop_shortens_the_closing_of_the_dispatcher() -> None:
    closing = asyncio.Event()

    class Slow(ManagedBroker):
        async def __aexit__(self, *error: object) -> None:
            closing.set()
            await asyncio.Event().wait()

    relay = relay_of(Slow())
    await relay.start()
    first = asyncio.create_task(relay.stop(20.0))
    await closing.wait()
    began = time.monotonic()
    await relay.stop(0.0)
    assert relay.state == "stopped"
    await first
    assert time.monotonic() - began < 2.0


async def test_a_closing_has_five_seconds_however_long_the_grace_is() -> None:
    class Slow(ManagedBroker):
        async def __aexit__(self, *error: object) -> None:
            await asyncio.Event().wait()

    relay = relay_of(Slow())
    await relay.start()
    began = time.monotonic()
    await relay.stop(60.0)
    assert 4.5 < time.monotonic() - began < 8.0
