"""Use a dispatcher until it does what is expected."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import pytest

from outbox_core.dispatcher import BatchDispatcher, Dispatcher, Outcome
from outbox_core.errors import OutboxError
from outbox_core.message import DispatchedMessage

E = TypeVar("E", bound=OutboxError)
PAUSE = 0.05


async def failure(dispatcher: Dispatcher, message: DispatchedMessage) -> OutboxError:
    """The error that a dispatch raises, one of the library's own."""
    with pytest.raises(OutboxError) as caught:
        await dispatcher.dispatch(message)
    return caught.value


async def window(
    dispatcher: BatchDispatcher, messages: Sequence[DispatchedMessage], seconds: float = 10
) -> Sequence[Outcome]:
    """The outcomes of a window with a deadline in ``seconds``."""
    return await dispatcher.dispatch_many(messages, deadline=asyncio.get_running_loop().time() + seconds)


async def delivered(dispatcher: Dispatcher, message: DispatchedMessage, within: float = 20) -> None:
    """Dispatch again and again until it works."""
    async with asyncio.timeout(within):
        while True:
            try:
                await dispatcher.dispatch(message)
            except OutboxError:
                await asyncio.sleep(PAUSE)
            else:
                return


async def failing(dispatcher: Dispatcher, message: DispatchedMessage, kind: type[E], within: float = 20) -> E:
    """Dispatch again and again until it raises an error of this kind."""
    async with asyncio.timeout(within):
        while True:
            try:
                await dispatcher.dispatch(message)
            except OutboxError as error:
                if isinstance(error, kind):
                    return error
            await asyncio.sleep(PAUSE)
