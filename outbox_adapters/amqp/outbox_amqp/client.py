"""Making and ending a connection to an AMQP broker with one channel for publishing."""

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
    "loop": "the loop is the one that runs",
}
HEARTBEAT_SECONDS: Final = 10
"""A dead peer is noticed after 33 seconds; with aiormq's own default of 60 it would be 183."""

_GATHERED_WRITES: Final = 64
_QUIET_TURNS: Final = 3


class Session:
    """A connection and a channel on it whose every publish is confirmed by the broker or returned."""

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
        """Whether the broker has said that it takes no messages: it is short of disk or memory."""
        transport: Any = self.connection.transport
        unblocked: Any = getattr(
            getattr(transport, "connection", None), "_Connection__connection_unblocked", None
        )
        blocked = unblocked is not None and not unblocked.is_set()
        self._was_blocked = self._was_blocked or blocked
        return blocked

    @property
    def is_usable(self) -> bool:
        """A connection that was blocked and is not any more still has old messages on it, and is replaced."""
        return not self.channel.is_closed and (self.is_blocked or not self._was_blocked) and self.is_connected

    @property
    def is_connected(self) -> bool:
        transport: Any = self.connection.transport
        return not self.connection.is_closed and transport is not None and not transport.connection.is_closed

    async def publish(self, destination: AmqpDestination, rendered: WireMessage) -> object:
        """What the broker said to a message, once no other one of its id is on the channel.

        aiormq finds the message that was returned by its id: of two, it would take the wrong one for delivered.
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
                wait=False,  # for the socket; the confirmation is waited for all the same
            )
        finally:
            if self._in_flight.get(message_id) is task:
                del self._in_flight[message_id]


class SocketFactory(aiormq.connection.TransportFactory):
    """Opens the connection's socket, and remembers it, so that it can be closed whatever state the client is in."""

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
    """A stream writer that sends together what is written in close succession.

    aiormq writes one message in each turn of the event loop, and each would be a call of the operating system. Here
    they wait until a few turns have brought no more, which on an idle loop is a matter of microseconds.
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
    """Connects to an address. aio-pika's robust connections are not used: a lost one is replaced here."""

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
        except Exception as error:  # whatever the client raises, there is no working connection
            await _clean_up(connection, sockets)
            raise unavailable(error, self._address.name) from None
        except BaseException:  # a cancellation too must leave nothing behind
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
    """Opens, and later closes, a channel of its own on a connection of the application's."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def connect(self, lost: Lost, /) -> Session:
        if self._connection.is_closed:
            raise unavailable(None, "the connection that was given")
        try:
            session = await opened(self._connection, None)
        except Exception as error:  # whatever the client raises, there is no working connection
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
        """The socket is the application's."""


async def opened(connection: AbstractConnection, sockets: SocketFactory | None) -> Session:
    channel = connection.channel(publisher_confirms=True, on_return_raises=True)
    await channel.initialize()
    return Session(connection, channel, await channel.get_underlay_channel(), sockets)


async def ping(session: Session) -> None:
    """A round trip: a channel is opened and closed."""
    channel = session.connection.channel(publisher_confirms=False)
    await channel.initialize()
    await channel.close()


async def check_exists(session: Session, exchange: str, queue: str) -> None:
    """Raise when there is no such exchange, or no such queue where the exchange is the default one.

    On a channel of its own: the broker closes it when it says no.
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
    """End what a failed start has left: its socket, then the client's own tasks."""
    sockets.abort()
    # Its socket is gone, so closing fails in whichever way the half-made client was in; the error that matters is the
    # one of the start, which the caller raises.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(1):
            await connection.close()


def _resolved(value: Any) -> Any:
    """A login or a password, asked for anew when it is given as a function."""
    return value() if callable(value) else value


_build_url: Final[Any] = make_url
"""Options besides its own go into the URL's query, which its annotations do not say."""
