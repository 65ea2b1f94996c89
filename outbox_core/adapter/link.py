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
"""How long a client in doubt may take to close before its sockets are closed under it."""
_ABORT_SECONDS: Final = 0.2

_logger: Final = logging.getLogger(__name__)


class Blocked(BrokerUnavailable):
    """Raised when the broker takes nothing for now, and this very client will hear when it does again.

    Unlike any other `BrokerUnavailable`, it does not cost the client its place.
    """


class Connector(Protocol[C]):
    """How to make and end one client of a broker. None of it is bounded in time: the link sees to that."""

    async def connect(self, lost: Lost, /) -> C:
        """A client that works. Raises `BrokerUnavailable`, or `BrokerRefused` when only a person can help.

        Call ``lost`` as soon as the client notices that its connection is gone: whoever waits on it is told at once.
        Leaves nothing open when it raises or is cancelled.
        """
        ...

    def usable(self, client: C, /) -> bool:
        """Whether the client believes that it works."""
        ...

    async def close(self, client: C, /) -> None:
        """End the client in order."""
        ...

    def abort(self, client: C, /) -> None:
        """Close the client's sockets, now, without asking the broker. Harmless after `close`."""
        ...


class Given(Generic[C]):
    """The connector of a client that the application already has: neither made nor closed here, only used."""

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
        """It is not ours to close."""

    def abort(self, client: C, /) -> None:
        """It is not ours to close."""


class Held(Generic[C]):
    """A client in use, and what became of it."""

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
    """Lends a client to whoever publishes, and builds a new one when the last was retired, lost or never there.

    Any number may use it at a time. A retired client gets no new work; it is closed in the background once those who
    still use it have ended. Nothing here waits longer than it is told.
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
        """Try once to connect. A broker that is away is no error, only said: it is tried again when it is needed.

        Raises `BrokerRefused` when it refuses the login, since that is better known now than found out later. Whoever
        opens it closes it; it stays open while anybody has it so.
        """
        self._openings += 1
        try:
            # A little longer than connecting may take, so that it is connecting that tells what was wrong.
            await self._lend(anyio.current_time() + self._connect_timeout + _ABORT_SECONDS)
        except BrokerRefused:
            await self.close()
            raise
        except BrokerUnavailable as error:
            _logger.warning("%s: %s; it is tried again when there is something to send", self._name, error)
        except BaseException:  # a cancellation too must leave nothing open
            with anyio.CancelScope(shield=True):
                await self.close()
            raise

    async def close(self) -> None:
        """The last one to leave ends the client, and those still ending, within the close timeout.

        Works unopened and twice.
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
        """A client, connecting first when there is none. Raises `BrokerUnavailable` when there is none by then."""
        held = await self._lend(deadline)
        held.users += 1
        try:
            yield held
        finally:
            held.users -= 1
            if held.retired and not held.users:
                self._end(held, RETIRED_CLOSE_SECONDS)

    def retire(self, held: Held[C]) -> None:
        """Give the client no new work: it missed a deadline, or said something after which it cannot be trusted."""
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
            task.exception()  # whoever waited has it; with nobody left, it is not worth a report

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
        """Close in order if that works in time, and by force in any case."""
        closing = asyncio.create_task(self._connector.close(held.client))
        try:
            await asyncio.wait([closing], timeout=seconds)
        finally:
            closing.cancel()
            self._connector.abort(held.client)
        await asyncio.wait([closing], timeout=_ABORT_SECONDS)
        if not closing.done():
            _logger.warning(
                "%s: the client of the broker did not end when told to, and was left behind", self._name
            )
        elif not closing.cancelled() and (error := closing.exception()) is not None:
            _logger.debug("%s: closing raised %s", self._name, type(error).__name__)
