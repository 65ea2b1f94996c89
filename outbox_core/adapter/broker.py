"""What the dispatchers of all brokers have in common: their lifecycle, windows, deadlines and probes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import anyio

from outbox_core.adapter.link import Connector, Link
from outbox_core.adapter.pipeline import ask, send_window
from outbox_core.errors import ConfigError

if TYPE_CHECKING:
    from outbox_core.dispatcher import Outcome
    from outbox_core.meta import DispatchedMessage

C = TypeVar("C")

TIMEOUT: Final = 30.0
CONNECT_TIMEOUT: Final = 5.0
CLOSE_TIMEOUT: Final = 2.0
PROBE_TIMEOUT: Final = 5.0
MAX_SECONDS: Final = 3600.0


class BrokerDispatcher(ABC, Generic[C]):
    """A dispatcher that speaks to a broker through a client ``C``, which it replaces when that is in doubt.

    A subclass says how to `publish` one message and how to `ping`; its `Connector` says how to make and end a client.
    Opened and closed by ``async with``, and again after that. A broker that is away does not keep it from being
    opened; one that refuses the login does.
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
        """How metrics and logs call it; without credentials."""
        self._timeout = _seconds("timeout", timeout)
        self._link = Link(
            name,
            connector,
            connect_timeout=_seconds("connect_timeout", connect_timeout),
            close_timeout=_seconds("close_timeout", close_timeout),
        )

    @abstractmethod
    async def publish(self, client: C, message: DispatchedMessage, /) -> None:
        """Send one message and return once the broker has confirmed it; raise the error that says why not otherwise.

        Called for many messages at once, each in a task of its own, and cancelled at the deadline.
        """

    @abstractmethod
    async def ping(self, client: C, /) -> None:
        """A round trip to the broker that publishes nothing. Raises `BrokerUnavailable`; cancelled when it is late."""

    async def dispatch(self, message: DispatchedMessage, /) -> None:
        """Send one message; raises its outcome unless the broker has confirmed it within ``timeout``."""
        (outcome,) = await self.dispatch_many((message,), deadline=anyio.current_time() + self._timeout)
        if outcome is not None:
            raise outcome

    async def dispatch_many(
        self, messages: Sequence[DispatchedMessage], /, *, deadline: float
    ) -> Sequence[Outcome]:
        """Send a window at once and return by the deadline with an outcome for each message, in order."""
        return await send_window(self._link, messages, self.publish, deadline=deadline)

    async def probe(self) -> None:
        """A round trip to the broker within 5 seconds, connecting first if need be. Raises `BrokerUnavailable`."""
        await ask(self._link, self.ping, timeout=PROBE_TIMEOUT)

    async def __aenter__(self) -> Self:
        await self._link.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._link.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def _seconds(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MAX_SECONDS:
        raise ConfigError(
            f"{name} is {value!r} and must be a number of seconds from above 0 to {MAX_SECONDS:g}"
        )
    return float(value)
