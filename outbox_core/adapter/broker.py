"""The base of every broker's dispatcher: lifecycle, windows, deadlines and probes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import anyio

from outbox_core.adapter.arguments import seconds
from outbox_core.adapter.link import Connector, Link
from outbox_core.adapter.pipeline import ask, send_window

if TYPE_CHECKING:
    from outbox_core.dispatcher import Outcome
    from outbox_core.meta import DispatchedMessage

C = TypeVar("C")

TIMEOUT: Final = 30.0
CONNECT_TIMEOUT: Final = 5.0
CLOSE_TIMEOUT: Final = 2.0
PROBE_TIMEOUT: Final = 5.0


class BrokerDispatcher(ABC, Generic[C]):
    """A dispatcher that talks to a broker through a client ``C``, and replaces the client when it is in doubt.

    A subclass implements how to publish a window and how to `ping`; its `Connector` makes and ends clients. Open and
    close it with ``async with``; it can be opened again. Several users may have it open at a time, such as two relays:
    the last one to leave closes it. It opens while the broker is unavailable; it does not open when the broker refuses
    the login.
    """

    def __init__(
        self,
        name: str,
        connector: Connector[C],
        *,
        timeout: float,
        connect_timeout: float,
        close_timeout: float,
    ) -> None:
        self.name: Final = name
        """The name in metrics and logs; without credentials."""
        self._timeout = seconds("timeout", timeout)
        self._link = Link(
            name,
            connector,
            connect_timeout=seconds("connect_timeout", connect_timeout),
            close_timeout=seconds("close_timeout", close_timeout),
        )

    @abstractmethod
    async def publish_window(
        self, client: C, messages: Sequence[DispatchedMessage], outcomes: list[Outcome], /
    ) -> None:
        """Send every message, and write the outcome of each at its index in ``outcomes`` as soon as it is known.

        `outbox_core.adapter.pipeline.publish_each` does so with a function of one message. Several windows may be
        published at a time. It is cancelled at the deadline: a message without an outcome then gets `DispatchTimeout`.
        An error it raises is the outcome of every message without one.
        """

    @abstractmethod
    async def ping(self, client: C, /) -> None:
        """Make a round trip to the broker without publishing. Raises `BrokerUnavailable`; cancelled when it is late."""

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        """Send one message; raises its outcome unless the broker has confirmed it within ``timeout``."""
        (outcome,) = await self.dispatch_many((message,), deadline=anyio.current_time() + self._timeout)
        if outcome is not None:
            raise outcome

    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        """Send a window at once and return by the deadline with an outcome for each message, in order."""
        return await send_window(self._link, messages, self.publish_window, deadline=deadline)

    async def probe(self) -> None:
        """Make a round trip to the broker within 5 seconds, connecting first if needed. Raises `BrokerUnavailable`."""
        await ask(self._link, self.ping, timeout=PROBE_TIMEOUT)

    async def inspect(self, topic: str, /) -> None:
        """Ask the broker, within 5 seconds, for the destination of the topic's messages; raises if there is none."""
        await ask(self._link, partial(self.look_for, topic), timeout=PROBE_TIMEOUT)

    async def look_for(self, topic: str, client: C, /) -> None:
        """Raise when the broker has no destination for the topic's messages; by default, assume that it has one."""

    async def __aenter__(self) -> Self:
        await self._link.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._link.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
