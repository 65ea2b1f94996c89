"""Making and ending a client of NATS."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from nats.aio.client import Client
from nats.errors import NoServersError, SecureConnWantedError
from nats.js import JetStreamContext

from outbox_core.errors import BrokerRefused, BrokerUnavailable, ProviderError
from outbox_nats.classification import unavailable

if TYPE_CHECKING:
    from outbox_core.adapter.link import Lost
    from outbox_nats.address import NatsAddress

KNOWN_OPTIONS: Final = frozenset(inspect.signature(Client.connect).parameters) - {"self"}
OWNED_OPTIONS: Final[Mapping[str, str]] = {
    "servers": "the servers are in the url",
    "allow_reconnect": "a connection that was lost is replaced by a new client",
    "max_reconnect_attempts": "a connection that was lost is replaced by a new client, for as long as it takes",
    "reconnect_time_wait": "a connection that was lost is replaced by a new client",
    "reconnect_to_server_handler": "a connection that was lost is replaced by a new client",
    "pending_size": "messages must not be kept back and sent after their outcome was given",
    "verbose": "the client does not read the answers it asks for",
}
PING_SECONDS: Final = 15
"""A dead peer is noticed after two of these; nats-py's own default is 120."""

_DENIED: Final = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)
_TASKS: Final = ("_reading_task", "_flusher_task", "_ping_interval_task", "_reconnection_task")


class Session:
    """A connected client, and those who wait for an acknowledgement on it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.stream_context = JetStreamContext(client)
        self._denials: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Task[Any]]] = {}

    async def acknowledged(self, subject: str, publish: Awaitable[Any]) -> Any:
        """What a publish returned. Raises `ProviderError` at once when the server says that it is not allowed.

        The server says so beside the request, which it does not answer at all. Called in a task of its own.
        """
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        waiting = self._waiting.setdefault(subject, set())
        waiting.add(task)
        denials = self._denials.get(subject, 0)
        try:
            return await publish
        except asyncio.CancelledError:
            if self._denials.get(subject, 0) > denials and task.uncancel() == 0:
                raise ProviderError(
                    f"the server does not allow this user to publish to {subject!r}"
                ) from None
            raise
        finally:
            waiting.discard(task)
            if not waiting and self._waiting.get(subject) is waiting:
                del self._waiting[subject]

    def deny(self, error: Exception) -> None:
        """Take in what the server said beside the answers."""
        match = _DENIED.search(str(error))
        if match is not None:
            self._denials[match[1]] = self._denials.get(match[1], 0) + 1
            for task in self._waiting.pop(match[1], ()):
                task.cancel()


class NatsConnector:
    """Connects to one of the servers of an address. nats-py's own reconnecting is off: a lost client is replaced."""

    def __init__(self, address: NatsAddress, options: Mapping[str, Any], *, connect_timeout: float) -> None:
        self._address = address
        self._options = options
        self._connect_timeout = connect_timeout

    async def connect(self, lost: Lost, /) -> Session:
        failure: BrokerUnavailable | None = None
        for server in random.sample(self._address.servers, len(self._address.servers)):
            try:
                return await self._connect_to(server, lost)
            except BrokerUnavailable as error:
                if failure is None or isinstance(error, BrokerRefused):
                    failure = error
        raise failure or BrokerUnavailable("the address names no server")

    async def _connect_to(self, server: str, lost: Lost) -> Session:
        client = Client()
        errors: list[Exception] = []
        session: Session | None = None

        async def on_error(error: Exception) -> None:
            errors.append(error)
            del errors[:-3]
            if session is not None:
                session.deny(error)
            await _call(self._options.get("error_cb"), error)

        async def on_closed() -> None:
            if session is not None:
                lost(unavailable(client.last_error or (errors[-1] if errors else None), server))
            await _call(self._options.get("closed_cb"))

        options: dict[str, Any] = {
            "connect_timeout": self._connect_timeout,
            "ping_interval": PING_SECONDS,
            **_secured({**self._address.client_arguments(), **self._options}, client),
            "servers": [server],
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "pending_size": -1,
            "error_cb": on_error,
            "closed_cb": on_closed,
        }
        try:
            await client.connect(**options)
            if "tls" in options and not _is_encrypted(client):
                raise SecureConnWantedError
        except Exception as error:
            # "No servers" is all the client says when it could not even open a socket; it told why before.
            cause = errors[-1] if errors and isinstance(error, NoServersError) else error
            await self._clean_up(client)
            raise unavailable(cause, server) from None
        except BaseException:
            await self._clean_up(client)
            raise
        session = Session(client)
        return session

    def usable(self, client: Session, /) -> bool:
        return is_usable(client)

    async def close(self, client: Session, /) -> None:
        await client.client.close()

    def abort(self, client: Session, /) -> None:
        _abort(client.client)

    async def _clean_up(self, client: Client) -> None:
        """What a client leaves behind when it could not connect: an open socket, and tasks if it got so far."""
        _abort(client)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await client.close()


def is_usable(session: Session) -> bool:
    return session.client.is_connected and not session.client.is_draining


async def ping(client: Client) -> None:
    """A round trip: PING and PONG.

    nats-py's own `rtt` and `flush` cancel the future they leave behind for the answer, and one that comes late then
    ends the client's reading for good. This one is never cancelled.
    """
    pong: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    send: Callable[[asyncio.Future[Any]], Awaitable[None]] | None = getattr(client, "_send_ping", None)
    if send is None:
        await client.rtt()
        return
    await send(pong)
    await asyncio.shield(pong)


def _secured(arguments: dict[str, Any], client: Client) -> dict[str, Any]:
    """With TLS asked for, let no password out before the connection is encrypted.

    nats-py encrypts when the server, or whoever stands before it, asks for that, whatever its user asked for.
    """
    if "tls" not in arguments:
        return arguments

    def guarded(value: Any) -> Callable[[], Any]:
        def give() -> Any:
            if not _is_encrypted(client):
                raise SecureConnWantedError
            return value() if callable(value) else value

        return give

    secrets = {
        name: guarded(arguments[name]) for name in ("password", "token") if arguments.get(name) is not None
    }
    return arguments | secrets


def _is_encrypted(client: Client) -> bool:
    writer: Any = getattr(getattr(client, "_transport", None), "_io_writer", None)
    # A transport without such a writer is a WebSocket, whose URL decides.
    return writer is None or writer.get_extra_info("ssl_object") is not None


def _abort(client: Client) -> None:
    """Close the socket and end the tasks, whatever state the client is in: its own `close` may raise half-way."""
    writer: Any = getattr(getattr(client, "_transport", None), "_io_writer", None)
    if writer is not None:
        writer.transport.abort()
    tasks: list[Any] = [getattr(client, name, None) for name in _TASKS]
    subscriptions: Mapping[int, Any] = getattr(client, "_subs", {})
    tasks += [getattr(subscription, "_wait_for_msgs_task", None) for subscription in subscriptions.values()]
    for task in tasks:
        if task is not None and task is not asyncio.current_task():
            task.cancel()


async def _call(callback: Any, *arguments: object) -> None:
    if callback is not None:
        await callback(*arguments)
