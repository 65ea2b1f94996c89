"""Shutdown: the deadline only moves closer, the first error is the one that counts, and waits hear both."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from outbox_core.runtime.shutdown import Shutdown, first_of
from tests.kit.tuning import Clock, stop_clock
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stop_clock(monkeypatch, 100.0)


async def test_without_a_request_there_is_no_deadline() -> None:
    shutdown = Shutdown()
    assert (shutdown.requested, shutdown.deadline, shutdown.error) == (False, inf, None)


async def test_the_deadline_moves_closer_and_never_away(time: Clock) -> None:
    shutdown, seen = Shutdown(), list[float]()
    for grace in (30.0, 60.0, 5.0, 20.0, 0.0):
        shutdown.request(grace)
        seen.append(shutdown.deadline)
    assert seen == [130.0, 130.0, 105.0, 105.0, 100.0]
    time.now += 50.0
    shutdown.request(0.0)
    assert shutdown.deadline == 100.0


async def test_the_first_error_counts_and_a_later_one_still_shortens_the_stop(time: Clock) -> None:
    shutdown, first = Shutdown(), ValueError("first")
    shutdown.fail(first, 10.0)
    assert (shutdown.requested, shutdown.deadline, shutdown.error) == (True, 110.0, first)
    shutdown.fail(ValueError("second"))
    assert (shutdown.deadline, shutdown.error) == (100.0, first)


async def test_of_a_group_the_first_error_is_kept() -> None:
    error = OSError("refused")
    group = BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [error, ValueError()]), KeyError()])
    shutdown = Shutdown()
    shutdown.fail(group)
    assert shutdown.error is error
    assert first_of(error) is error


async def test_all_that_wait_hear_the_request() -> None:
    shutdown = Shutdown()
    waiting = [asyncio.create_task(shutdown.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    shutdown.request(60.0)
    async with asyncio.timeout(5.0):
        await asyncio.gather(*waiting)
        await shutdown.wait()


async def test_a_wait_for_the_deadline_hears_that_it_moved_closer() -> None:
    shutdown = Shutdown()
    waiting = asyncio.create_task(shutdown.until_deadline())
    shutdown.request(60.0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    shutdown.request(40.0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done(), "closer, and not over"
    shutdown.request(0.0)
    await until(waiting.done, 5.0)
    waiting.result()


async def test_a_wait_may_go_on_for_some_seconds_after_the_deadline() -> None:
    shutdown, began = Shutdown(), asyncio.get_running_loop().time()
    shutdown.request(0.0)
    async with asyncio.timeout(5.0):
        await shutdown.until_deadline(0.1)
    assert asyncio.get_running_loop().time() - began >= 0.1
