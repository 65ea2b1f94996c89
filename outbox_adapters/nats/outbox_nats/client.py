"""Connect and close a NATS client."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import itertools
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nats.aio.client import Client
from nats.errors import NoServersError, SecureConnWantedError

from outbox_core.errors import BrokerRefused, BrokerUnavailable, ConfigError, ProviderError
from outbox_nats.classification import unavailable

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from outbox_core.adapter.link import Lost
    from outbox_nats.address import NatsAddress

KNOWN_OPTIONS: Final = frozenset(inspect.signature(Client.connect).parameters) - {"self"}
OWNED_OPTIONS: Final[Mapping[str, str]] = {
    "servers": "the servers are in the url",
    "allow_reconnect": "a connection that was lost is replaced by a new client",
    "max_reconnect_attempts": "a connection that was lost is replaced by a new client, for as long as it takes",
    "reconnect_time_wait": "a connection that was lost is replaced by a new client",
    "reconnect_to_server_handler": "a connection that was lost is replaced by a new client",
    "pending_size": "messages must not be buffered and sent after their outcome was reported",
    "verbose": "the client does not read the answers it asks for",
}
SIGNING_OPTIONS: Final = ("nkeys_seed", "nkeys_seed_str", "user_credentials")
PING_SECONDS: Final = 15
"""A dead peer is noticed after two of these; nats-py's default is 120."""

_DENIED: Final = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)
_TASKS: Final = ("_reading_task", "_flusher_task", "_ping_interval_task", "_reconnection_task")


class Session:
    """A connected client, and the messages on it that no stream has acknowledged yet.

    A publish to JetStream is a request, and the acknowledgement is its answer. nats-py's own requests cost a task, a
    timer and a random name each; a session has one inbox for all answers, and the caller bounds the wait for them.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._numbers = itertools.count()
        self._waiting: dict[str, tuple[str, asyncio.Future[Msg]]] = {}

    async def open(self) -> Session:
        """Subscribe to the inbox. The server reads in order, so the subscription is active before the first publish."""
        self._inbox = f"{self.client.new_inbox()}."
        client: Any = self.client  # the annotations of `subscribe` are not complete
        self._subscription = await client.subscribe(f"{self._inbox}*", cb=self._answered)
        return self

    async def close(self) -> None:
        """Unsubscribe from the inbox, on a client that belongs to the application."""
        if self._subscription is not None and not self.client.is_closed:
            await self._subscription.unsubscribe()

    async def send(self, subject: str, payload: bytes, headers: dict[str, str]) -> asyncio.Future[Msg]:
        """Publish a message through the client; the future gets the answer, of any kind.

        The future raises `ProviderError` when the server denies the publish, which it reports without an answer to the
        request.
        """
        token = str(next(self._numbers))
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = (subject, answer)
        try:
            await self.client.publish(subject, payload, reply=self._inbox + token, headers=headers)
        except BaseException:  # a cancellation, too, must leave nothing open
            del self._waiting[token]
            raise
        return answer

    async def _answered(self, msg: Msg) -> None:
        _, answer = self._waiting.pop(msg.subject[len(self._inbox) :], ("", None))
        if answer is not None and not answer.done():
            answer.set_result(msg)

    def deny(self, error: Exception) -> None:
        """Fail the messages that the server denied; it reports that as an error, not as an answer."""
        match = _DENIED.search(str(error))
        if match is None:
            return
        for token in [token for token, (subject, _) in self._waiting.items() if subject == match[1]]:
            subject, answer = self._waiting.pop(token)
            if not answer.done():
                answer.set_exception(
                    ProviderError(f"the server does not allow this user to publish to {subject!r}")
                )


class NatsConnector:
    """Connects to one of the servers of an address. nats-py does not reconnect: the link replaces a lost client."""

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
        except Exception as error:  # any error of the client: there is no working connection
            # When it cannot open a socket the client raises "no servers"; it reported the reason before.
            cause = errors[-1] if errors and isinstance(error, NoServersError) else error
            await self._clean_up(client)
            raise unavailable(cause, server) from None
        except BaseException:  # a cancellation, too, must leave nothing open
            await self._clean_up(client)
            raise
        session = Session(client)
        return await session.open()

    def usable(self, client: Session, /) -> bool:
        return is_usable(client)

    async def close(self, client: Session, /) -> None:
        await client.client.close()

    def abort(self, client: Session, /) -> None:
        _abort(client.client)

    async def _clean_up(self, client: Client) -> None:
        """Close what a client left open when it could not connect: its socket, and the tasks it had started."""
        _abort(client)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await client.close()


class GivenClient:
    """Uses a client that belongs to the application; only the inbox on it is closed."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def connect(self, _lost: Lost, /) -> Session:
        if not self._client.is_connected or self._client.is_draining:
            raise BrokerUnavailable("the NATS client that was given is not connected")
        try:
            return await Session(self._client).open()
        except Exception as error:  # any error of the client: there is no working connection
            raise unavailable(error, "the server of the NATS client that was given") from None

    def usable(self, client: Session, /) -> bool:
        return is_usable(client)

    async def close(self, client: Session, /) -> None:
        await client.close()

    def abort(self, client: Session, /) -> None:
        """Do nothing: the socket belongs to the application."""


def check_installed(options: Mapping[str, Any]) -> None:
    """Refuse options for which nats-py needs a package that is not installed: every connection would fail."""
    for name in SIGNING_OPTIONS:
        if options.get(name) is not None and importlib.util.find_spec("nkeys") is None:
            raise ConfigError(
                f"the client option {name!r} needs the package nkeys; install it with: pip install 'nats-py[nkeys]'"
            )


def is_usable(session: Session) -> bool:
    return session.client.is_connected and not session.client.is_draining


async def ping(client: Client) -> None:
    """Make a round trip: PING and PONG.

    nats-py's own `rtt` and `flush` cancel the future that waits for the answer, and a late answer then ends the
    client's reading for good. This future is never cancelled.
    """
    pong: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    send: Callable[[asyncio.Future[Any]], Awaitable[None]] | None = getattr(client, "_send_ping", None)
    if send is None:
        await client.rtt()
        return
    await send(pong)
    await asyncio.shield(pong)


def _secured(arguments: dict[str, Any], client: Client) -> dict[str, Any]:
    """The arguments, with passwords guarded until the connection is encrypted, where TLS is required.

    nats-py encrypts only when the server, or a proxy in front of it, asks for TLS, even if its user requires it.
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
    """Close the socket and end the tasks, in any state of the client: its own `close` may raise half-way."""
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
