"""SIGTERM and SIGINT while a relay runs in the foreground: the first asks for a stop, each further one to hurry."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_asking: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]]] = WeakKeyDictionary()
"""Whom a signal is for: every relay that runs in the foreground of an event loop."""
_handlers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, ExitStack]] = WeakKeyDictionary()


@contextmanager
def stop_on_signals(request_stop: Callable[[float], None], grace: float) -> Generator[None]:
    """While the block lasts, a signal calls ``request_stop`` with ``grace``, and any after it with 0.

    Handlers that were set with ``signal.signal`` are put back at the end. One that was set through the event loop
    cannot be read, so it is gone. Does nothing outside the main thread, and where the event loop knows no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def ask() -> None:
        nonlocal asked
        request_stop(0.0 if asked else grace)
        asked = True

    loop = asyncio.get_running_loop()
    asking = _asking.setdefault(loop, [])
    asking.append(ask)
    if len(asking) == 1:
        _handlers[loop] = handlers = ExitStack()
        for number in _SIGNALS:
            handlers.enter_context(_handled(loop, number, partial(_ask_all, asking)))
    try:
        yield
    finally:
        asking.remove(ask)
        if not asking:
            _handlers.pop(loop).close()


def _ask_all(asking: Sequence[Callable[[], None]]) -> None:
    for ask in tuple(asking):
        ask()


@contextmanager
def _handled(
    loop: asyncio.AbstractEventLoop, number: signal.Signals, callback: Callable[[], None]
) -> Generator[None]:
    try:
        # Only when it has taken its own away does the loop tell that it had one: what Python then has is not that.
        replaceable = not loop.remove_signal_handler(number)
        previous = signal.getsignal(number) if replaceable else None
        loop.add_signal_handler(number, callback)
    except NotImplementedError:  # of the event loops of Windows
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
        if previous is not None:
            signal.signal(number, previous)
