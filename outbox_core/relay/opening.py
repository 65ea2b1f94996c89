"""Opening a dispatcher before the relay uses it, and closing it after, each within its time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.errors import DispatchTimeout

if TYPE_CHECKING:
    from outbox_core.dispatcher import Managed

OPENING_SECONDS: Final = 8.0
"""What a dispatcher has at least: longer than adapters try to connect, for which a broker that is away is no error."""
_LEAST_SECONDS: Final = 0.1


@asynccontextmanager
async def opened(
    dispatcher: Managed, start_seconds: float, seconds_to_close: Callable[[], float]
) -> AsyncGenerator[None]:
    """Enter the dispatcher, and leave it whatever happens; leaving is cut off when its time is over."""
    try:
        with anyio.fail_after(start_seconds):
            await dispatcher.__aenter__()
    except TimeoutError:
        raise DispatchTimeout(f"the dispatcher did not start within {start_seconds:g} s") from None
    try:
        yield
    finally:
        with anyio.move_on_after(max(seconds_to_close(), _LEAST_SECONDS), shield=True):
            await dispatcher.__aexit__(None, None, None)
