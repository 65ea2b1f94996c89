"""A CancelledError that the relay did not cause is no stop: what ends for it is reported, and never ends silently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import inf

import pytest

from outbox_core.errors import RelayFailed
from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.relay.ordering.admission import Admission
from outbox_core.store import Claim, Lease, Leased, Tick
from outbox_core.stores.memory.election import MemoryElection
from outbox_core.table import TableName
from tests.kit.gates import ignore
from tests.kit.memory import OTHER, TABLE, KeptStore, put, rows
from tests.kit.settings import QUICK
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
SECONDS = 10.0
REPORTED = (
    "a part of the relay ended with CancelledError: what it waited for was cancelled, and not by the relay"
)


class Cancelled(KeptStore):
    """Waits, in the named parts, for a task that is cancelled from outside."""

    def __init__(self, *parts: str) -> None:
        super().__init__()
        self.parts = set(parts)

    async def _meet(self, part: str) -> None:
        if part in self.parts:
            task = asyncio.create_task(asyncio.Event().wait())
            asyncio.get_running_loop().call_soon(task.cancel)
            await task

    def election(self, table: TableName) -> MemoryElection:
        election = super().election(table)
        heartbeat = election.heartbeat

        async def cancelled(term: int) -> bool:
            await self._meet("heartbeat")
            return await heartbeat(term)

        election.heartbeat = cancelled  # type: ignore[method-assign]
        return election

    async def keep_listening(self) -> None:
        await self._meet("keep_listening")

    async def tick(self, table: TableName) -> Tick:
        if table == TABLE:
            await self._meet("tick")
        return await super().tick(table)

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        if table == TABLE:
            await self._meet("publish")
        return await super().publish(table, leases, delete=delete)


def relay_on(
    store: Cancelled, deliver: Callable[[DispatchedMessage], Awaitable[None]], *, alone: bool = True
) -> Relay:
    return Relay(
        store.connect,
        tables=[TABLE, OTHER],
        dispatcher=deliver,
        single_active=alone,
        takeover=5.0,
        **QUICK | {"dispatch_timeout": 5.0},
    )


@pytest.mark.parametrize("part", ["tick", "heartbeat", "keep_listening", "publish"])
async def test_one_in_the_background_is_reported_by_a_critical_record_and_leaves_nothing_leased(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In every table: the one whose outcomes could not be written keeps at most what it was just writing."""
    store, inside, go_on = Cancelled(), 0, asyncio.Event()

    async def deliver(message: DispatchedMessage) -> None:
        nonlocal inside
        inside += 1
        if part != "publish" or message.meta.table != str(TABLE):
            await go_on.wait()

    relay = relay_on(store, deliver, alone=part != "keep_listening")
    async with asyncio.timeout(SECONDS):
        await relay.start()
        if part != "publish":
            await put(store, Message("a.b.v1", 1))
        await put(store, Message("a.b.v1", 1), table=OTHER)
        await until(lambda: inside == (1 if part == "publish" else 2))
        store.parts.add(part)
        if part == "publish":
            await put(store, Message("a.b.v1", 1))
        with pytest.raises(RelayFailed) as raised:
            await relay.wait()
    assert isinstance(raised.value.__cause__, RelayFailed)
    assert str(raised.value.__cause__).startswith(REPORTED)
    assert relay.state == "stopped"
    (record,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert record.message == (
        "the relay ended with RelayFailed; nothing is delivered until it is started again"
    )
    leased = {
        table: sum(row.lock_token is not None for row in rows(store, table=table)) for table in (TABLE, OTHER)
    }
    assert leased == {TABLE: int(part == "publish"), OTHER: 0}


@pytest.mark.parametrize("part", ["tick", "publish"])
@pytest.mark.parametrize(
    "form",
    [Relay.drain, Relay.run_once, lambda relay: relay.run(signals=False)],
    ids=["drain", "run_once", "run"],
)
async def test_one_in_the_foreground_raises(form: Callable[[Relay], Awaitable[object]], part: str) -> None:
    store = Cancelled(part)
    await put(store, Message("a.b.v1", 1))
    relay = relay_on(store, ignore)
    async with asyncio.timeout(SECONDS):
        with pytest.raises(RelayFailed, match=f"^{REPORTED}"):
            await form(relay)
    assert relay.state == "stopped"
    assert [row.published_at for row in rows(store)] == [None]


@pytest.mark.parametrize("form", [Relay.drain, lambda relay: relay.run(signals=False)], ids=["drain", "run"])
async def test_a_part_beside_the_claims_is_reported_too(
    form: Callable[[Relay], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_off(admission: Admission) -> None:
        raise asyncio.CancelledError("from elsewhere")

    monkeypatch.setattr(Admission, "run", cut_off)
    relay = relay_on(Cancelled(), ignore)
    async with asyncio.timeout(SECONDS):
        with pytest.raises(RelayFailed, match=f"^{REPORTED}"):
            await form(relay)
    assert relay.state == "stopped"


async def test_a_cancellation_of_the_relay_itself_is_still_one(caplog: pytest.LogCaptureFixture) -> None:
    store = Cancelled()
    running = asyncio.create_task(relay_on(store, ignore).run(signals=False))
    await put(store, Message("a.b.v1", 1))
    await until(lambda: all(row.published_at is not None for row in rows(store)))
    running.cancel()
    async with asyncio.timeout(SECONDS):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


class Claimed(KeptStore):
    """Says when the last claim was."""

    claimed_at = inf

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        self.claimed_at = asyncio.get_running_loop().time()
        return await super().claim(table, claim)


async def test_a_dispatcher_that_leaves_its_task_cancelled_keeps_no_row_behind_it() -> None:
    """As libraries of timeouts do that cancel a task and do not take that back. There is no room in flight, so
    that no claim comes to set another task to work."""
    store, begun = Claimed(), dict[int, float]()

    async def dispatch(message: DispatchedMessage) -> None:
        number, loop = int(message.payload), asyncio.get_running_loop()
        if number == 0 and not begun:
            task = asyncio.current_task()
            assert task is not None
            await until(lambda: loop.time() > store.claimed_at + 0.5)
            begun[0] = loop.time()
            loop.call_soon(task.cancel)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise TimeoutError from None
        begun.setdefault(number, loop.time())

    await put(store, *(Message("a.b.v1", number) for number in range(500)))
    settings = QUICK | {"dispatch_timeout": 6.0, "lock_ttl": 60.0, "concurrency": 1, "batch_size": 10}
    async with Relay(store.connect, table=TABLE, dispatcher=dispatch, **settings):
        await until(lambda: 1 in begun)
    assert begun[1] - begun[0] < 2.0


@pytest.mark.parametrize("part", ["TablePipeline._run", "Claimer.run", "Completer.step", "Leader.run"])
async def test_a_task_of_the_relay_that_is_cancelled_from_outside_ends_the_relay(part: str) -> None:
    """A table that is not delivered any more, by a relay that seems to run, would be the worst of all ends."""
    store = KeptStore()
    relay = Relay(store.connect, table=TABLE, dispatcher=ignore, **QUICK)
    await relay.start()
    (task,) = [task for task in asyncio.all_tasks() if part in _awaited(task)[:5]]
    task.cancel()
    with pytest.raises(RelayFailed) as raised:
        async with asyncio.timeout(SECONDS):
            await relay.wait()
    assert REPORTED in str(raised.value.__cause__)


def _awaited(task: asyncio.Task[object]) -> list[str]:
    """The coroutines that a task is in, from the outside in."""
    found, coroutine = list[str](), task.get_coro()
    while (code := getattr(coroutine, "cr_code", None)) is not None:
        found.append(code.co_qualname)
        coroutine = coroutine.cr_await
    return found
