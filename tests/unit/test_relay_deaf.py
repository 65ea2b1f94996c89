"""Other people's code that ignores its cancellation keeps no relay."""

from __future__ import annotations

import asyncio
import time

import pytest

from outbox_core.errors import BrokerUnavailable, DispatchTimeout
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay, opening
from outbox_core.stores.memory.store import MemoryStore
from tests.unit.relaying import QUICK, TABLE, eventually, put

pytestmark = pytest.mark.asyncio


class Deaf:
    """Hears nothing while it is opened, probed or closed, whichever it is to be, until it is let go."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        if self.where == "probe":
            raise BrokerUnavailable("refused")

    async def probe(self) -> None:
        await self._hear_nothing("probe")

    async def __aenter__(self) -> Deaf:
        await self._hear_nothing("opening")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._hear_nothing("closing")

    async def _hear_nothing(self, where: str) -> None:
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
    store, deaf = MemoryStore(), Deaf(where)
    await put(store, Message("a.b.v1", 1))
    relay = Relay(lambda: store, table=TABLE, dispatcher=deaf, **QUICK)
    running = asyncio.create_task(relay.run(signals=False))
    try:
        if where == "probe":
            await deaf.reached.wait()
        else:
            await eventually(lambda: relay.state == "running")
        asked = time.monotonic()
        await relay.stop(0.5)
        async with asyncio.timeout(1.0):
            await running
        assert time.monotonic() - asked < 2.0
        assert relay.state == "stopped"
    finally:
        deaf.let_go.set()
    assert "ignored its cancellation and was left behind" in caplog.text


async def test_a_dispatcher_that_does_not_open_is_an_error_in_its_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("outbox_core.relay.run.OPENING_SECONDS", 0.3)
    deaf = Deaf("opening")
    try:
        async with asyncio.timeout(5.0):
            with pytest.raises(DispatchTimeout, match=r"did not start within 0\.3 s"):
                await Relay(MemoryStore, table=TABLE, dispatcher=deaf, **QUICK).start()
    finally:
        deaf.let_go.set()
    assert "the opening of the dispatcher ignored its cancellation" in caplog.text


async def test_it_is_opened_and_closed_in_one_task_and_what_is_raised_comes_through() -> None:
    tasks: list[asyncio.Task[object] | None] = []

    class Fussy:
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            pass

        async def __aenter__(self) -> Fussy:
            tasks.append(asyncio.current_task())
            return self

        async def __aexit__(self, *error: object) -> None:
            tasks.append(asyncio.current_task())
            raise OSError("cannot be closed")

    async def use() -> None:
        async with opening.opened(Fussy(), 1.0, lambda: 1.0):
            pass

    with pytest.raises(OSError, match="cannot be closed"):
        await use()
    assert len(tasks) == 2
    assert tasks[0] is tasks[1]


async def test_the_end_of_the_event_loop_does_not_close_it_before_the_relay_does() -> None:
    """All tasks are cancelled at once then, that of the dispatcher too."""
    closed = asyncio.Event()

    class Managed:
        async def dispatch(self, message: DispatchedMessage, /) -> None:
            pass

        async def __aenter__(self) -> Managed:
            return self

        async def __aexit__(self, *error: object) -> None:
            closed.set()

    async with opening.opened(Managed(), 1.0, lambda: 1.0):
        (keeper,) = [task for task in asyncio.all_tasks() if task.get_name() == "outbox-dispatcher"]
        keeper.cancel()
        done, _ = await asyncio.wait({keeper}, timeout=0.05)
        assert not done
        assert not closed.is_set()
    assert closed.is_set()
