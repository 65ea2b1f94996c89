"""Cancelled at any await: the cancellation comes through, nothing leaks, and nothing is lost or made up."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from math import inf
from typing import Any

import asyncpg
import pytest

from outbox_core.errors import PermanentError
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from tests.integration.relay.bench import STOPPED_SECONDS, TABLE, Bench
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio
ALL_OF_THE_FIRST = 20
STRIDE = int(os.environ.get("OUTBOX_TEST_CANCEL_STRIDE", "6"))
"""After the first awaits, every how manyth is cut off; 1 takes them all, which needs minutes."""


class Steps:
    """Counts every resumption of every task made while it is in force, and at the k-th does what it was told."""

    def __init__(self, k: int, then: Callable[[Steps], None]) -> None:
        self.k = k
        self.then = then
        self.resumed = 0
        self.cut_at = inf
        self.tasks: list[asyncio.Future[Any]] = []

    def __enter__(self) -> Steps:
        self._loop = asyncio.get_running_loop()
        self._factory = self._loop.get_task_factory()
        self._loop.set_task_factory(self._create)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.set_task_factory(self._factory)

    def _create(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Future[Any]:
        assert self._factory is not None
        task = self._factory(loop, _Counted(coroutine, self), **options)
        self.tasks.append(task)
        return task

    def step(self) -> None:
        self.resumed += 1
        if self.resumed == self.k:
            self.cut_at = time.monotonic()
            self.then(self)

    @property
    def reached(self) -> bool:
        return self.resumed >= self.k


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that reports each of its steps before it takes it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], steps: Steps) -> None:
        self._coroutine = coroutine
        self._steps = steps

    def send(self, value: Any, /) -> Any:
        self._steps.step()
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._steps.step()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        """``cr_running`` and the like, by which anyio finds out whether a task has begun."""
        return getattr(self._coroutine, name)


def cancel_the_caller(steps: Steps) -> None:
    steps.tasks[0].cancel()


def cancel_everything(steps: Steps) -> None:
    """As the end of an event loop does."""
    for task in steps.tasks:
        task.cancel()


class Destination:
    """Counts deliveries; one message dies."""

    def __init__(self) -> None:
        self.delivered: Counter[int] = Counter()
        self.began = asyncio.Event()

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.began.set()
        await asyncio.sleep(0)
        if message.json() == 3:
            raise PermanentError("never")
        self.delivered[message.json()] += 1
        await asyncio.sleep(0)


async def check(bench: Bench, destination: Destination, expected: set[int]) -> None:
    """Whatever was cut off: a clean drain, once leases are over, brings everything to its end."""
    assert not [task for task in asyncio.all_tasks() if "outbox" in task.get_name()]
    await bench.nothing_is_left()
    await bench.connection.execute(
        f"UPDATE {TABLE} SET locked_at = now() - interval '1 day' WHERE lock_token IS NOT NULL"  # noqa: S608
    )
    await bench.connection.execute(
        f"UPDATE {TABLE} SET available_at = now() WHERE dead_at IS NULL AND published_at IS NULL"  # noqa: S608
    )
    await bench.relay(destination).drain()
    rows = {int(row["content"]): row for row in await bench.rows()}
    assert rows.keys() == expected
    assert {number for number, row in rows.items() if row["state"] == "dead"} == {3} & expected
    assert set(destination.delivered) == expected - {3}
    for number, row in rows.items():
        assert row["state"] == ("dead" if number == 3 else "published")
        # Each charged attempt is at most one delivery.
        assert destination.delivered[number] <= row["attempts"]


async def drain(relay: Relay) -> None:
    await relay.drain()


async def start_and_stop(relay: Relay) -> None:
    await relay.start()
    await relay.stop(grace=1.0)
    await relay.wait()


async def work_and_stop(relay: Relay) -> None:
    """Stopped as soon as something is in dispatch."""
    async with relay:
        destination = relay._dispatcher
        assert isinstance(destination, Destination)
        await destination.began.wait()


# A task that anyio made and somebody else cancels before its first step never begins, which Python warns of.
_UNBEGUN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("how", [cancel_the_caller, pytest.param(cancel_everything, marks=_UNBEGUN)])
@pytest.mark.parametrize("flow", [drain, start_and_stop, work_and_stop])
async def test_cut_off_at_every_await(
    bench: Bench,
    flow: Callable[[Relay], Coroutine[Any, Any, None]],
    how: Callable[[Steps], None],
    record_property: Callable[[str, object], None],
) -> None:
    """Of claim, dispatch, record and stop: the first await, the second, and so on, until the flow gets through."""
    destination = Destination()
    expected: set[int] = set()
    cuts, k = 0, 1
    while True:
        numbers = [1000 * k + number for number in range(3)] + ([3] if k == 1 else [])
        await bench.enqueue(*numbers, key="k" if cuts % 2 else None)
        expected.update(numbers)
        destination.began.clear()
        relay = bench.relay(destination, lock_ttl=30.0, max_attempts=1000)
        with Steps(k, how) as steps:
            task = asyncio.create_task(flow(relay))
            async with asyncio.timeout(10):
                await asyncio.wait([task])
                assert time.monotonic() - steps.cut_at < STOPPED_SECONDS, f"cut off at {k}"
                await asyncio.wait(steps.tasks)
        assert relay.state == "stopped", k
        if not steps.reached:
            await task
            break
        assert task.cancelled() or task.exception() is None, f"{task} cut off at {k}"
        cuts += 1
        if cuts % 10 == 0:
            await check(bench, destination, expected)
        k += 1 if k < ALL_OF_THE_FIRST else STRIDE
    await check(bench, destination, expected)
    assert cuts > 15
    record_property("cancel_points", cuts)
    record_property("awaits", steps.resumed)


async def test_the_callers_timeout_is_the_callers(bench: Bench) -> None:
    hanging = asyncio.Event()

    async def dispatch(message: DispatchedMessage) -> None:
        hanging.set()
        await asyncio.Event().wait()

    await bench.enqueue(1)
    relay = bench.relay(dispatch, dispatch_timeout=20.0, lock_ttl=60.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await relay.run(signals=False)
    assert hanging.is_set()
    assert relay.state == "stopped"
    assert (await bench.row())["state"] == "pending"
    await bench.nothing_is_left()


async def test_a_lost_session_during_a_cancellation_is_no_leak(bench: Bench) -> None:
    relay = bench.relay(Destination())
    await relay.start()
    await bench.enqueue(1)
    await bench.settled()
    killer = await asyncpg.connect(bench.dsn)
    stopping = asyncio.create_task(relay.stop(grace=1.0))
    await killer.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'outbox:%' AND datname = current_database()"
    )
    await stopping
    await relay.wait()
    await killer.close()
    await until(lambda: relay.state == "stopped")
    await bench.nothing_is_left()
