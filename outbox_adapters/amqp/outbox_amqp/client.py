"""Open and close a connection to an AMQP broker, with one channel for publishing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import aiormq.connection
from aio_pika import Connection
from aio_pika.connection import make_url

from outbox_amqp.classification import unavailable

if TYPE_CHECKING:
    import ssl

    from aio_pika.abc import AbstractChannel, AbstractConnection
    from yarl import URL

    from outbox_amqp.address import AmqpAddress
    from outbox_amqp.rendering import AmqpDestination, WireMessage
    from outbox_core.adapter.link import Lost

KNOWN_OPTIONS: Final = frozenset(
    (
        "auth", "cadata", "cafile", "capath", "certfile", "client_properties", "happy_eyeballs_delay", "heartbeat",
        "interleave", "keyfile", "login", "name", "no_verify_ssl", "password", "ssl_context",
    )
)  # fmt: skip
OWNED_OPTIONS: Final[Mapping[str, str]] = {
    "url": "the address is in the url",
    "host": "the address is in the url",
    "port": "the address is in the url",
    "virtualhost": "the virtual host is in the url",
    "ssl": "amqps:// in the url asks for TLS",
    "ssl_options": "give an ssl_context, or cafile, certfile and keyfile",
    "timeout": "connect_timeout bounds the connecting",
    "connection_class": "a connection that was lost is replaced by a new one",
    "loop": "the running event loop is used",
}
HEARTBEAT_SECONDS: Final = 10
"""A dead peer is noticed after 33 seconds; with aiormq's default of 60 it would take 183."""

_GATHERED_WRITES: Final = 64
_QUIET_TURNS: Final = 3


class Session:
    """A connection, and a channel on it on which the broker confirms or returns every publish."""

    def __init__(
        self,
        connection: AbstractConnection,
        channel: AbstractChannel,
        underlay: Any,
        sockets: SocketFactory | None,
    ) -> None:
        self.connection = connection
        self.channel = channel
        self.underlay = underlay
        self.sockets = sockets
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._was_blocked = False

    @property
    def is_blocked(self) -> bool:
        """True while the broker blocks publishers because it is short of disk or memory."""
        transport: Any = self.connection.transport
        unblocked: Any = getattr(
            getattr(transport, "connection", None), "_Connection__connection_unblocked", None
        )
        blocked = unblocked is not None and not unblocked.is_set()
        self._was_blocked = self._was_blocked or blocked
        return blocked

    @property
    def is_usable(self) -> bool:
        """True while the session may be kept. After a block it is replaced: old messages are still on it."""
        return not self.channel.is_closed and (self.is_blocked or not self._was_blocked) and self.is_connected

    @property
    def is_connected(self) -> bool:
        transport: Any = self.connection.transport
        return not self.connection.is_closed and transport is not None and not transport.connection.is_closed

    async def publish(self, destination: AmqpDestination, rendered: WireMessage) -> object:
        """Publish a message and return the broker's answer, once no other message with its id is on the channel.

        aiormq finds a returned message by its id: of two with the same id it would take the wrong one for delivered.
        """
        message_id = rendered.message_id
        while (other := self._in_flight.get(message_id)) is not None:
            await asyncio.wait((other,))
        task = self._in_flight[message_id] = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            return await self.underlay.basic_publish(
                rendered.body,
                exchange=destination.exchange,
                routing_key=destination.routing_key,
                properties=rendered.properties,
                mandatory=True,
                wait=False,  # concerns the socket alone; the confirmation is awaited
            )
        finally:
            if self._in_flight.get(message_id) is task:
                del self._in_flight[message_id]


class SocketFactory(aiormq.connection.TransportFactory):
    """Opens the connection's socket, and keeps it, so that it can be aborted in any state of the client."""

    def __init__(self, *, tls: bool) -> None:
        self._factory = (
            aiormq.connection.TLSTransportFactory() if tls else aiormq.connection.TCPTransportFactory()
        )
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await self._factory.create(url, **kwargs)
        return reader, cast("asyncio.StreamWriter", GatheringWriter(self._writer))

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


class GatheringWriter:
    """A stream writer that joins writes in close succession into one.

    aiormq writes one message in each turn of the event loop, and each write would be a system call. This writer waits
    until a few turns have brought no more, which takes microseconds on an idle loop.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._written: list[bytes] = []
        self._quiet_turns = 0
        self._flush_scheduled = False

    def write(self, data: bytes) -> None:
        self._written.append(data)
        self._quiet_turns = 0
        if len(self._written) >= _GATHERED_WRITES:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_when_quiet)

    def _flush_when_quiet(self) -> None:
        self._quiet_turns += 1
        if self._written and self._quiet_turns <= _QUIET_TURNS:
            asyncio.get_running_loop().call_soon(self._flush_when_quiet)
        else:
            self._flush_scheduled = False
            self._flush()

    async def drain(self) -> None:
        self._flush()
        await self._writer.drain()

    def write_eof(self) -> None:
        self._flush()
        self._writer.write_eof()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._written:
            self._writer.write(b"".join(self._written))
            self._written.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class AmqpConnector:
    """Connects to an address. aio-pika's robust connections are not used: the link replaces a lost connection."""

    def __init__(self, address: AmqpAddress, options: Mapping[str, Any]) -> None:
        self._address = address
        self._options = options

    async def connect(self, lost: Lost, /) -> Session:
        options: dict[str, Any] = {"heartbeat": HEARTBEAT_SECONDS, **self._options}
        login, password = (_resolved(options.pop(name, None)) for name in ("login", "password"))
        address = self._address
        if login is not None or password is not None:
            address = replace(
                address,
                username=login or address.username or "guest",
                password=password or address.password or "",
            )
        context: ssl.SSLContext | None = options.pop("ssl_context", None)
        properties: Any = options.pop("client_properties", None)
        connection = Connection(
            _build_url(address.client_arguments()["url"], **options),
            ssl_context=context,
            client_properties=properties,
        )
        sockets = SocketFactory(tls=address.tls)
        connection.kwargs["transport_factory"] = sockets
        try:
            await connection.connect()
            session = await opened(connection, sockets)
        except Exception as error:  # any error of the client: there is no working connection
            await _clean_up(connection, sockets)
            raise unavailable(error, self._address.name) from None
        except BaseException:  # a cancellation, too, must leave nothing open
            await _clean_up(connection, sockets)
            raise
        connection.close_callbacks.add(lambda _, error: lost(unavailable(error, self._address.name)))
        return session

    def usable(self, client: Session, /) -> bool:
        return client.is_usable

    async def close(self, client: Session, /) -> None:
        await client.connection.close()

    def abort(self, client: Session, /) -> None:
        if client.sockets is not None:
            client.sockets.abort()


class GivenConnection:
    """Opens, and later closes, its own channel on a connection that belongs to the application."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def connect(self, lost: Lost, /) -> Session:
        if self._connection.is_closed:
            raise unavailable(None, "the connection that was given")
        try:
            session = await opened(self._connection, None)
        except Exception as error:  # any error of the client: there is no working connection
            raise unavailable(error, "the connection that was given") from None
        session.channel.close_callbacks.add(
            lambda _, error: (
                None if session.is_connected else lost(unavailable(error, "the connection that was given"))
            )
        )
        return session

    def usable(self, client: Session, /) -> bool:
        return client.is_usable

    async def close(self, client: Session, /) -> None:
        if not client.channel.is_closed:
            await client.channel.close()

    def abort(self, client: Session, /) -> None:
        """Do nothing: the socket belongs to the application."""


async def opened(connection: AbstractConnection, sockets: SocketFactory | None) -> Session:
    channel = connection.channel(publisher_confirms=True, on_return_raises=True)
    await channel.initialize()
    return Session(connection, channel, await channel.get_underlay_channel(), sockets)


async def ping(session: Session) -> None:
    """Make a round trip: open and close a channel."""
    channel = session.connection.channel(publisher_confirms=False)
    await channel.initialize()
    await channel.close()


async def check_exists(session: Session, exchange: str, queue: str) -> None:
    """Raise when there is no such exchange or, on the default exchange, no such queue.

    It needs its own channel: the broker closes the channel when the answer is no.
    """
    channel = session.connection.channel(publisher_confirms=False)
    await channel.initialize()
    try:
        if exchange:
            await channel.get_exchange(exchange, ensure=True)
        else:
            await channel.get_queue(queue, ensure=True)
    finally:
        await channel.close()


async def _clean_up(connection: Connection, sockets: SocketFactory) -> None:
    """Close what a failed start left open: its socket, then the client's own tasks."""
    sockets.abort()
    # Without its socket, closing a half-made client fails in some way; the caller raises the error that matters.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(1):
            await connection.close()


def _resolved(value: Any) -> Any:
    """A login or a password; a function is called for a new one at every connection."""
    return value() if callable(value) else value


_build_url: Final[Any] = make_url
"""`make_url`, which puts further options into the URL's query; its annotations do not say so."""
