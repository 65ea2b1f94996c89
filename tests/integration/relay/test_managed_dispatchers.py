"""Dispatchers that are opened and closed with the relay: what hangs is bounded, what fails is told."""

from __future__ import annotations

import asyncio
import time

import pytest

from outbox_core.errors import ConfigError
from outbox_core.meta import DispatchedMessage
from tests.integration.relay.bench import Bench

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("where", ["start", "stop"])
async def test_a_managed_dispatcher_that_hangs_is_bounded(bench: Bench, where: str) -> None:
    class Managed:
        async def dispatch(self, message: DispatchedMessage, /) -> None: ...

        async def __aenter__(self) -> None:
            if where == "start":
                await asyncio.Event().wait()

        async def __aexit__(self, *error: object) -> None:
            if where == "stop":
                await asyncio.Event().wait()

    relay = bench.relay(Managed(), dispatch_timeout=0.3)
    began = time.monotonic()
    if where == "start":
        with pytest.raises(Exception, match="the dispatcher did not start within 8 s"):
            await relay.start()
    else:
        await relay.start()
        await relay.stop(grace=0.2)
        await relay.wait()
    assert time.monotonic() - began < (11 if where == "start" else 3)
    assert relay.state == "stopped"
    await bench.nothing_is_left()


async def test_a_managed_dispatcher_that_cannot_start_says_why(bench: Bench) -> None:
    class Managed:
        async def dispatch(self, message: DispatchedMessage, /) -> None: ...

        async def __aenter__(self) -> None:
            raise ConfigError("no broker address")

        async def __aexit__(self, *error: object) -> None:
            raise AssertionError("was never entered")

    relay = bench.relay(Managed())
    with pytest.raises(ConfigError, match="no broker address"):
        await relay.start()
    assert relay.state == "stopped"
    await bench.nothing_is_left()
