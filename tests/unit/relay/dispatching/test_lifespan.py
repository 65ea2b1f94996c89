"""Code that ignores its cancellation holds up no relay."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import anyio
import pytest

from outbox_core.errors import BrokerUnavailable, DispatchTimeout
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Failed
from outbox_core.relay import Relay
from outbox_core.relay.dispatching.lifespan import opened
from outbox_core.runtime.shutdown import Shutdown
from outbox_core.stores.memory.store import MemoryStore
from tests.kit.brokers import ManagedBroker
from tests.kit.memory import OTHER, TABLE, put, rows
from tests.kit.observing import Heard
from tests.kit.settings import QUICK
from tests.kit.tuning import tune
from tests.kit.waiting import quiet_for, until

pytestmark = pytest.mark.asyncio


class Stubborn:
    """Ignores its cancellation while it is opened, probed or closed, as said, until it is let go."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        if self.where == "probe":
            raise BrokerUnavailable("refused")

    async def probe(self) -> None:
        await self._ignore("probe")

    async def __aenter__(self) -> Stubborn:
        await self._ignore("opening")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._ignore("closing")

    async def _ignore(self, where: str) -> None:
        if where != self.where:
            return
        self.reached.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue


@pytest.mark.parametrize("where", ["probe", "closing"])
async def test_a_relay_is_gone_in_its_time(where: str, caplog: pytest.LogCaptureFixture) -> None:
    store, stubborn = MemoryStore(), Stubborn(where)
    await put(store, Message("a.b.v1", 1))
    relay = Relay(lambda: store, table=TABLE, dispatcher=stubborn, **QUICK)
    running = asyncio.create_task(relay.run(signals=False))
    try:
        if where == "probe":
            await stubborn.reached.wait()
        else:
            await until(lambda: relay.state == "running")
        asked = time.monotonic()
        await relay.stop(0.5)
        async with asyncio.timeout(1.0):
            await running
        assert time.monotonic() - asked < 2.0
        assert relay.state == "stopped"
    finally:
        stubborn.let_go.set()
    assert "ignored its cancellation and was abandoned" in caplog.text


async def test_a_dispatcher_that_does_not_open_is_an_error_in_its_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tune(monkeypatch, opening_seconds=0.3)
    stubborn = Stubborn("opening")
    try:
        async with asyncio.timeout(5.0):
            with pytest.raises(DispatchTimeout, match=r"did not start within 0\.3 s"):
                await Relay(MemoryStore, table=TABLE, dispatcher=stubborn, **QUICK).start()
    finally:
        stubborn.let_go.set()
    assert "the opening of the dispatcher ignored its cancellation" in caplog.text


async def test_it_is_opened_and_closed_in_one_task_and_what_is_raised_comes_through() -> None:
    class Fussy(ManagedBroker):
        async def __aexit__(self, *error: object) -> None:
            await super().__aexit__(*error)
            raise OSError("cannot be closed")

    fussy = Fussy()
    with pytest.raises(OSError, match="cannot be closed"):
        async with opened(fussy, 1.0, Shutdown()):
            pass
    assert len(fussy.tasks) == 2
    assert fussy.tasks[0] is fussy.tasks[1]


async def test_the_end_of_the_event_loop_does_not_close_it_before_the_relay_does() -> None:
    """All tasks are cancelled at once then, the dispatcher's too: the relay stops, and closes it in its time."""
    managed, shutdown = ManagedBroker(), Shutdown()
    async with opened(managed, 1.0, shutdown):
        (keeper,) = [task for task in asyncio.all_tasks() if task.get_name() == "outbox-dispatcher"]
        keeper.cancel()
        await quiet_for(0.05, keeper.done)
        assert (shutdown.requested, len(managed.tasks)) == (True, 1)
    assert (shutdown.error, len(managed.tasks)) == (None, 2)


async def test_to_cancel_it_again_closes_it_and_that_fails_the_relay() -> None:
    managed, shutdown = ManagedBroker(), Shutdown()
    async with opened(managed, 1.0, shutdown):
        (keeper,) = [task for task in asyncio.all_tasks() if task.get_name() == "outbox-dispatcher"]
        keeper.cancel()
        await quiet_for(0.05, keeper.done)
        keeper.cancel()
        await until(keeper.done)
        assert str(shutdown.error) == "the dispatcher was closed, and not by the relay"


@pytest.mark.parametrize("group", ["anyio", "asyncio"])
async def test_a_dispatcher_whose_own_task_dies_ends_the_relay_with_its_error(group: str) -> None:
    async def reader() -> None:
        await until(lambda: relay.state == "running")
        raise OSError("the connection's reader died")

    class Reading(ManagedBroker):
        async def __aenter__(self) -> ManagedBroker:
            if group == "anyio":
                self.tasks_of_its_own = await anyio.create_task_group().__aenter__()
                self.tasks_of_its_own.start_soon(reader)
            else:
                self.tasks_of_its_own = await asyncio.TaskGroup().__aenter__()
                self.tasks_of_its_own.create_task(reader())
            return self

        async def __aexit__(self, *error: object) -> None:
            await self.tasks_of_its_own.__aexit__(*error)

        tasks_of_its_own: Any

    relay = Relay(MemoryStore, table=TABLE, dispatcher=Reading(), **QUICK)
    async with asyncio.timeout(5.0):
        with pytest.raises(OSError, match="reader died"):
            await relay.run(signals=False)
    assert relay.state == "stopped"


async def test_a_stop_in_the_moment_the_opening_ends_leaves_nothing_open() -> None:
    class Slow(ManagedBroker):
        async def __aenter__(self) -> ManagedBroker:
            await until(lambda: relay._run is not None)
            assert relay._run is not None
            asyncio.get_running_loop().call_soon(relay._run.request_stop, 0.5)  # as a signal's handler would
            return await super().__aenter__()

    slow = Slow()
    relay = Relay(MemoryStore, table=TABLE, dispatcher=slow, **QUICK)
    async with asyncio.timeout(5.0):
        await relay.run(signals=False)
    assert len(slow.tasks) == 2
    assert [task for task in asyncio.all_tasks() if task.get_name() == "outbox-dispatcher"] == []


async def test_what_opens_after_its_time_is_closed_and_not_used() -> None:
    class Late(ManagedBroker):
        async def __aenter__(self) -> ManagedBroker:
            with suppress(asyncio.CancelledError):  # as if an unavailable broker were no error
                await asyncio.Event().wait()
            return await super().__aenter__()

    late = Late()
    with pytest.raises(DispatchTimeout, match=r"did not start within 0\.1 s"):
        async with opened(late, 0.1, Shutdown()):
            raise AssertionError("it is not open")
    assert len(late.tasks) == 2


async def test_stubborn_probes_do_not_pile_up_and_do_not_keep_an_outage_going() -> None:
    """When it cannot be asked any more, a message is sent to see, as with a dispatcher that has no probe."""

    class Back(Stubborn):
        probes, unavailable = 0, True

        async def dispatch(self, message: DispatchedMessage, /) -> None:
            if self.unavailable:
                raise BrokerUnavailable("refused")

        async def probe(self) -> None:
            self.probes += 1
            await super().probe()

    store, back, heard = MemoryStore(), Back("probe"), Heard()
    await put(store, Message("a.b.v1", 1))
    try:
        async with Relay(lambda: store, table=TABLE, dispatcher=back, observers=[heard], **QUICK):
            await until(lambda: len(heard.of(Failed)) >= 4)
            back.unavailable = False
            await until(lambda: all(row.published_at is not None for row in rows(store)))
        assert back.probes == 3
    finally:
        back.let_go.set()


async def test_two_tables_may_ask_at_one_time() -> None:
    store, heard = MemoryStore(), Heard()

    class Slow:
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            await asyncio.Event().wait()

        async def probe(self) -> None:
            await asyncio.sleep(0.05)

    for table in (TABLE, OTHER):
        await put(store, Message("a.b.v1", 1), table=table)
    async with Relay(
        lambda: store, tables=[TABLE, OTHER], dispatcher=Slow(), observers=[heard], max_attempts=100, **QUICK
    ):
        await until(lambda: len(heard.of(Failed)) >= 2)
        assert [event.charged for event in heard.of(Failed)][:2] == [True, True]
