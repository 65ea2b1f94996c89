"""The connection of a dispatcher to its broker: one client at a time, replaced whenever it is in doubt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, Generic, Protocol, TypeVar

import anyio

from outbox_core.errors import BrokerRefused, BrokerUnavailable

C = TypeVar("C")

Lost = Callable[[BrokerUnavailable], None]
RETIRED_CLOSE_SECONDS: Final = 1.0
"""Seconds that a retired client may take to close before its sockets are aborted."""
_ABORT_SECONDS: Final = 0.2

_logger: Final = logging.getLogger(__name__)


class Blocked(BrokerUnavailable):
    """Raised when the broker accepts nothing for now, and notifies this client when it does again.

    Unlike any other `BrokerUnavailable`, it does not retire the client.
    """


class Connector(Protocol[C]):
    """Makes and ends clients of a broker. Its methods need no time limit: the link bounds each of them."""

    async def connect(self, lost: Lost, /) -> C:
        """Return a working client. Raises `BrokerUnavailable`, or `BrokerRefused` when only a person can help.

        Call ``lost`` as soon as the client notices that its connection is gone: every window that waits on it is
        notified at once. Leave nothing open when raising or cancelled.
        """
        ...

    def usable(self, client: C, /) -> bool:
        """True while the client considers itself connected."""
        ...

    async def close(self, client: C, /) -> None:
        """Close the client gracefully."""
        ...

    def abort(self, client: C, /) -> None:
        """Close the client's sockets now, without a word to the broker. Does nothing after `close`."""
        ...


class Given(Generic[C]):
    """The connector of a client that belongs to the application: used, and never closed."""

    def __init__(self, client: C, usable: Callable[[C], bool], what: str) -> None:
        self._client = client
        self._usable = usable
        self._what = what

    async def connect(self, _lost: Lost, /) -> C:
        if not self._usable(self._client):
            raise BrokerUnavailable(f"the {self._what} that was given is not connected")
        return self._client

    def usable(self, client: C, /) -> bool:
        return self._usable(client)

    async def close(self, client: C, /) -> None:
        """Do nothing: the client belongs to the application."""

    def abort(self, client: C, /) -> None:
        """Do nothing: the client belongs to the application."""


class Held(Generic[C]):
    """A client with its users and its state."""

    __slots__ = ("client", "ending", "loss", "retired", "users", "watchers")

    def __init__(self, client: C) -> None:
        self.client = client
        self.users = 0
        self.retired = False
        self.ending = False
        self.loss: BrokerUnavailable | None = None
        self.watchers: set[Callable[[], None]] = set()
        """Called when the connection is lost."""


class Link(Generic[C]):
    """Lends one client to every window, and makes a new one when there is none or the last was retired or lost.

    Any number of windows may use it at a time. A retired client gets no new work; it is closed in the background once
    its last user has ended. Every wait is bounded.
    """

    def __init__(
        self, name: str, connector: Connector[C], *, connect_timeout: float, close_timeout: float
    ) -> None:
        self._name = name
        self._connector = connector
        self._connect_timeout = connect_timeout
        self._close_timeout = close_timeout
        self._openings = 0
        self._held: Held[C] | None = None
        self._connecting: asyncio.Task[Held[C]] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Try once to connect. An unavailable broker is only logged: the next window tries again.

        Raises `BrokerRefused` when the broker refuses the login, so that a wrong login fails at the start. Each `open`
        needs its own `close`; the link stays open until the last one.
        """
        self._openings += 1
        try:
            # A little longer than connecting may take, so that the error is the connector's, which says more.
            await self._lend(anyio.current_time() + self._connect_timeout + _ABORT_SECONDS)
        except BrokerRefused:
            await self.close()
            raise
        except BrokerUnavailable as error:
            _logger.warning("%s: %s; the next message tries again", self._name, error)
        except BaseException:  # a cancellation too must leave nothing open
            with anyio.CancelScope(shield=True):
                await self.close()
            raise

    async def close(self) -> None:
        """Close the client, and wait for retired ones, within the close timeout; only the last `close` does so.

        Safe to call unopened and twice.
        """
        self._openings = max(self._openings - 1, 0)
        if self._openings:
            return
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait([connecting], timeout=self._close_timeout)
        held, self._held = self._held, None
        if held is not None and not held.retired:
            held.retired = True
            self._end(held, self._close_timeout)
        if self._ending:
            await asyncio.wait(self._ending, timeout=self._close_timeout + _ABORT_SECONDS)

    @asynccontextmanager
    async def use(self, deadline: float) -> AsyncGenerator[Held[C]]:
        """Lend a client, connecting first when there is none. Raises `BrokerUnavailable` at the deadline."""
        held = await self._lend(deadline)
        held.users += 1
        try:
            yield held
        finally:
            held.users -= 1
            if held.retired and not held.users:
                self._end(held, RETIRED_CLOSE_SECONDS)

    def retire(self, held: Held[C]) -> None:
        """Give the client no new work: it missed a deadline, or raised an error after which it cannot be trusted."""
        if held.retired:
            return
        held.retired = True
        if self._held is held:
            self._held = None
        if not held.users:
            self._end(held, RETIRED_CLOSE_SECONDS)

    async def _lend(self, deadline: float) -> Held[C]:
        if not self._openings:
            raise BrokerUnavailable(f"{self._name} is not open; use it inside `async with`")
        held = self._held
        if held is not None:
            if self._connector.usable(held.client):
                return held
            self.retire(held)
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name=f"outbox-connect-{self._name}")
            self._connecting.add_done_callback(self._connected)
        task = self._connecting
        await asyncio.wait([task], timeout=max(deadline - anyio.current_time(), 0))
        if not task.done():
            raise BrokerUnavailable(f"no connection to {self._name} in time")
        if task.cancelled():
            raise BrokerUnavailable(f"{self._name} was closed while it connected")
        return task.result()

    def _connected(self, task: asyncio.Task[Held[C]]) -> None:
        if self._connecting is task:
            self._connecting = None
        if not task.cancelled():
            task.exception()  # retrieved: the windows that waited have it, and without any it needs no report

    async def _connect(self) -> Held[C]:
        held: Held[C] | None = None
        loss: BrokerUnavailable | None = None

        def lost(error: BrokerUnavailable) -> None:
            nonlocal loss
            loss = error
            if held is not None:
                self._lost(held, error)

        try:
            async with asyncio.timeout(self._connect_timeout):
                client = await self._connector.connect(lost)
        except TimeoutError:
            raise BrokerUnavailable(
                f"no connection to {self._name} within {self._connect_timeout:g} s: nothing answers there,"
                " or something other than such a broker"
            ) from None
        held = Held(client)
        if not self._openings:
            loss = BrokerUnavailable(f"{self._name} was closed while it connected")
        if loss is not None:
            held.loss = loss
            self.retire(held)
            raise loss
        self._held = held
        return held

    def _lost(self, held: Held[C], error: BrokerUnavailable) -> None:
        if held.loss is None:
            held.loss = error
            self.retire(held)
            for notify in tuple(held.watchers):
                notify()

    def _end(self, held: Held[C], seconds: float) -> None:
        if held.ending:
            return
        held.ending = True
        task = asyncio.create_task(self._close_or_abort(held, seconds), name=f"outbox-close-{self._name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _close_or_abort(self, held: Held[C], seconds: float) -> None:
        """Close the client gracefully within the time, and abort its sockets in any case."""
        closing = asyncio.create_task(self._connector.close(held.client))
        try:
            await asyncio.wait([closing], timeout=seconds)
        finally:
            closing.cancel()
            self._connector.abort(held.client)
        await asyncio.wait([closing], timeout=_ABORT_SECONDS)
        if not closing.done():
            _logger.warning(
                "%s: the broker's client did not end when it was cancelled, and was abandoned", self._name
            )
        elif not closing.cancelled() and (error := closing.exception()) is not None:
            _logger.debug("%s: closing raised %s", self._name, type(error).__name__)
