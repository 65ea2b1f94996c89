"""Destinations that are unavailable, hang or refuse, for as long as a test likes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Self

from outbox_core.dispatcher import Outcome
from outbox_core.errors import BrokerUnavailable
from outbox_core.meta import DispatchedMessage


class Broker:
    """A destination that can be unavailable in two ways: it says so, or it never answers."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.unavailable = False
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
        if self.unavailable and self.hangs:
            await asyncio.Event().wait()
        if self.unavailable:
            raise BrokerUnavailable("the connection was refused")


class ProbingBroker(Broker):
    """A destination that answers probes while it is available."""

    probes = 0

    async def probe(self) -> None:
        self.probes += 1
        await self.answer()


class WindowBroker(Broker):
    """A destination that takes windows."""

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


class UnavailableBroker:
    """A destination that refuses every message at once until it is back, and counts tries and probes.

    With ``answers_probes`` its probes succeed all the while.
    """

    def __init__(self, *, unavailable: bool = True, answers_probes: bool = False) -> None:
        self.unavailable = unavailable
        self.answers_probes = answers_probes
        self.tries = 0
        self.probes = 0

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        self.tries += 1
        if self.unavailable:
            raise BrokerUnavailable("refused")

    async def probe(self) -> None:
        self.probes += 1
        if self.unavailable and not self.answers_probes:
            raise OSError("refused")


class HangingBroker:
    """A destination that never answers, neither messages nor probes."""

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        await asyncio.Event().wait()

    async def probe(self) -> None:
        await asyncio.Event().wait()


class ManagedBroker:
    """A destination that acknowledges everything, is opened and closed, and keeps the tasks that did so."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[object] | None] = []

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        pass

    async def __aenter__(self) -> Self:
        self.tasks.append(asyncio.current_task())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.tasks.append(asyncio.current_task())


class SilentBroker:
    """A destination that acknowledges everything and can do nothing else."""

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        pass


async def unavailable(message: DispatchedMessage) -> None:
    """A destination that refuses every message and cannot be probed."""
    raise BrokerUnavailable("the connection was refused")


async def never_answer(message: DispatchedMessage) -> None:
    """A destination that never answers and cannot be probed."""
    await asyncio.Event().wait()
