"""Dispatchers that acknowledge at once, or wait until the test lets them."""

from __future__ import annotations

import asyncio

from outbox_core.meta import DispatchedMessage


async def ignore(message: DispatchedMessage) -> None:
    """A destination that acknowledges everything."""


class Gate:
    """A dispatcher that holds every message until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.inside = 0

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.inside += 1
        await self.opened.wait()
