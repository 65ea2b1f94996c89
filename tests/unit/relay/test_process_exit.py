"""A dispatcher that ends the process: that is no outcome of a message, and none is put on record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from outbox_core.message import Message
from outbox_core.meta import DispatchedMessage
from outbox_core.relay import Relay
from outbox_core.stores.memory.store import MemoryStore
from tests.kit.memory import TABLE, put, rows
from tests.kit.settings import QUICK


class Ending:
    """Ends the process with one message."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        if message.json() == "waits":
            await asyncio.Event().wait()
        if message.json() == "ends":
            raise self.error


class EndingWindows(Ending):
    async def dispatch_many(self, messages: Sequence[DispatchedMessage], /, *, deadline: float) -> Any:
        raise self.error


async def in_background(relay: Relay) -> None:
    async with relay:
        await relay.wait()


WAYS: list[Callable[[Relay], Coroutine[Any, Any, object]]] = [
    lambda relay: relay.run(signals=False),
    in_background,
    lambda relay: relay.drain(),
]
ERRORS = [SystemExit(3), KeyboardInterrupt()]


def end(
    dispatcher: Ending, way: Callable[[Relay], Coroutine[Any, Any, object]], *payloads: str
) -> MemoryStore:
    """Run a relay until the dispatcher's error comes out of the event loop; its store."""
    store = MemoryStore()

    async def live() -> None:
        await put(store, *(Message("a.b.v1", payload) for payload in payloads))
        settings = {**QUICK, "dispatch_timeout": 10.0}
        await way(Relay(lambda: store, table=TABLE, dispatcher=dispatcher, concurrency=2, **settings))

    with pytest.raises(type(dispatcher.error)) as raised:
        asyncio.run(live())
    assert raised.value is dispatcher.error
    return store


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", [Ending, EndingWindows])
@pytest.mark.parametrize("way", WAYS, ids=["run", "background", "drain"])
def test_it_ends_the_relay_and_what_that_had_in_flight_stays_leased(
    error: BaseException, kind: type[Ending], way: Callable[[Relay], Coroutine[Any, Any, object]]
) -> None:
    left = rows(end(kind(error), way, "waits", "ends", "later"))
    assert len(left) == 3
    for row in left:
        assert row.lock_token is not None
        assert (row.attempts, row.last_error, row.published_at, row.dead_at) == (1, None, None, None)
