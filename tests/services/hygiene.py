"""A pytest plugin that fails an async test which leaves tasks or connections behind.

The check comes after the test's fixtures are torn down and before its loop closes, so what a fixture runs and
stops again is no leak. Failures show as errors at teardown of the test to blame. It sees the function-scoped loop
of each test marked `asyncio`: tasks, TCP and unix sockets, hence every asyncpg connection. What only the garbage
collector can tell (listening servers, raw sockets, pipes) warns when collected, which happens before the verdict
on the test; with `filterwarnings = error` that warning fails it too. Loops without a list of their transports,
such as uvloop's, have only the second net.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import pytest_asyncio

SETTLING_ITERATIONS = 10
"""Turns of the loop in which cancelled tasks and closing transports may finish."""
SITES = 3
CHECKS = ["collect_garbage", "leave_the_loop_clean"]
ASYNCIO_FOLDER = str(Path(asyncio.__file__).parent)

Site = tuple[str, int, str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Parameters of one test share the list; the first fixtures set up are the last torn down.
        if isinstance(item, pytest.Function) and pytest_asyncio.is_async_test(item):
            item.fixturenames[:] = CHECKS + [name for name in item.fixturenames if name not in CHECKS]


def pytest_collection_finish() -> None:
    """Set aside what importing the tests made: collecting after each test then takes about 2 ms instead of 100."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture
def collect_garbage() -> Iterator[None]:
    yield
    gc.collect()


@pytest_asyncio.fixture(loop_scope="function")
async def leave_the_loop_clean() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    creations: WeakKeyDictionary[asyncio.Future[Any], list[Site]] = WeakKeyDictionary()

    def create_task(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **options: Any,
    ) -> asyncio.Future[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        creations[task] = _sites(inspect.currentframe())
        return task

    loop.set_task_factory(create_task)
    yield
    loop.set_task_factory(None)

    for _ in range(SETTLING_ITERATIONS):
        await asyncio.sleep(0)
        if not _running_tasks(loop) and not _open_transports(loop):
            return
    tasks, transports = _running_tasks(loop), _open_transports(loop)
    leaks = [_describe_task(task, creations.get(task, [])) for task in tasks]
    leaks += [_describe_transport(transport) for transport in transports]
    # Reported once: neither the loop's closing nor the collector shall tell of them again.
    for task in tasks:
        task.cancel()
    for transport in transports:
        transport.abort()
    await asyncio.sleep(0)
    pytest.fail("the test and its fixtures left behind:\n" + "\n".join(leaks), pytrace=False)


def _running_tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    return sorted(tasks, key=lambda task: task.get_name())


def _open_transports(loop: asyncio.AbstractEventLoop) -> list[asyncio.WriteTransport]:
    transports: dict[int, asyncio.WriteTransport] = dict(getattr(loop, "_transports", {}))
    return [transport for transport in transports.values() if not transport.is_closing()]


def _describe_task(task: asyncio.Task[Any], created: list[Site]) -> str:
    coroutine = getattr(task.get_coro(), "__qualname__", repr(task.get_coro()))
    lines = [f"- task {task.get_name()!r} running {coroutine}"]
    lines += [f"    waits at {_show(_site(frame))}" for frame in task.get_stack(limit=1)]
    lines += [f"    {'called' if nth else 'created'} at {_show(site)}" for nth, site in enumerate(created)]
    return "\n".join(lines)


def _describe_transport(transport: asyncio.WriteTransport) -> str:
    """Name the library and both addresses. Neither holds credentials, unlike a connection's own parameters."""
    protocol = type(transport.get_protocol())
    library = protocol.__module__.partition(".")[0]
    peer = transport.get_extra_info("peername") or "an unnamed peer"
    local = transport.get_extra_info("sockname") or "an unnamed socket"
    return f"- unclosed {library} connection to {peer} from {local} ({protocol.__module__}.{protocol.__qualname__})"


def _sites(frame: FrameType | None) -> list[Site]:
    """The innermost callers that are neither this module nor asyncio, up to where the loop took over."""
    sites: list[Site] = []
    while frame is not None and len(sites) < SITES:
        site = _site(frame)
        if site[0].startswith(ASYNCIO_FOLDER):
            if sites:
                break
        elif site[0] != __file__:
            sites.append(site)
        frame = frame.f_back
    return sites


def _site(frame: FrameType) -> Site:
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname


def _show(site: Site) -> str:
    return f"{site[0]}:{site[1]} in {site[2]}"
