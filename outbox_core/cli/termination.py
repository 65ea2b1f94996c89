"""SIGTERM as Ctrl-C: what was started is ended in order first."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
import click

T = TypeVar("T")


async def until_terminated(
    work: Callable[[], Awaitable[T]], *, beside: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> T:
    """Do the work, and what goes ``beside`` it until it is done.

    SIGTERM cancels it, and once it has cleaned up ``click.Abort`` is raised, as after Ctrl-C.
    """
    results: list[T] = []
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as received:
                async for _ in received:
                    tasks.cancel_scope.cancel()
                    return

        tasks.start_soon(listen)
        if beside is not None:
            tasks.start_soon(beside)
        results.append(await work())
        tasks.cancel_scope.cancel()
    if not results:
        raise click.Abort
    return results[0]
