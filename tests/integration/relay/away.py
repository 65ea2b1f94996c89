"""Destinations that can be away, for as long as a test likes, and settings that are over sooner."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from outbox_core.dispatcher import Outcome
from outbox_core.errors import BrokerUnavailable
from outbox_core.meta import DispatchedMessage

SHORT: dict[str, Any] = {
    "max_attempts": 3,
    "dispatch_timeout": 0.2,
    "backoff_base": 0.02,
    "backoff_cap": 0.05,
}
"""Retries are over within 0.1 s, so half a second of outage is longer than the whole span of them."""


class Broker:
    """A destination that can be away in two ways: it says so, or it never answers."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.away = False
        self.hangs = hangs
        self.calls: Counter[bytes] = Counter()
        self.at_once = 0
        self.most_at_once = 0

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.calls[message.payload] += 1
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self.answer()
        finally:
            self.at_once -= 1

    async def answer(self) -> None:
        await asyncio.sleep(0.001)
        if self.away and self.hangs:
            await asyncio.Event().wait()
        if self.away:
            raise BrokerUnavailable("the connection was refused")


class ProbingBroker(Broker):
    """It can be asked for a sign of life."""

    probes = 0

    async def probe(self) -> None:
        self.probes += 1
        await self.answer()


class WindowBroker(Broker):
    """It takes windows."""

    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        async def one(message: DispatchedMessage) -> Outcome:
            try:
                await self.dispatch(message)
            except Exception as error:
                return error
            return None

        return await asyncio.gather(*map(one, messages))


KINDS = {"plain": Broker, "probing": ProbingBroker, "windows": WindowBroker}
