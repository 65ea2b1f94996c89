"""The dispatcher to NATS JetStream: every message is acknowledged by a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import Header
from nats.js.errors import NotFoundError

from outbox_core.adapter.arguments import instance, optional_text, shown_name
from outbox_core.adapter.broker import CLOSE_TIMEOUT, CONNECT_TIMEOUT, TIMEOUT, BrokerDispatcher
from outbox_core.adapter.client_options import checked_options, exactly_one
from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.adapter.destination import DestinationMap, Destinations
from outbox_core.adapter.pipeline import Confirmations
from outbox_core.errors import ConfigError, OutboxError, PermanentError, ProviderError
from outbox_nats.address import NatsAddress
from outbox_nats.classification import Acknowledged, classify, read_answer, unavailable
from outbox_nats.client import (
    KNOWN_OPTIONS,
    OWNED_OPTIONS,
    GivenClient,
    NatsConnector,
    Session,
    check_installed,
    ping,
)
from outbox_nats.rendering import check_subject, render, stream_problem

if TYPE_CHECKING:
    import asyncio

    from nats.aio.msg import Msg

    from outbox_core.adapter.link import Connector
    from outbox_core.dispatcher import Outcome
    from outbox_core.message import DispatchedMessage
    from outbox_core.url import DispatcherUrl


class NatsDispatcher(BrokerDispatcher[Session]):
    """Publishes to JetStream subjects; a message counts as delivered once a stream has acknowledged it.

    Give either ``url``, such as ``nats://localhost:4222?stream=ORDERS``, or ``client``, a connected client of your
    application, which is used and never closed. ``client_options`` are passed to `nats.connect` unchanged: TLS
    contexts, credentials files, names. User, password and token may be functions, which are called for every new
    connection.

    The subject is the message's topic. Change this with ``destinations``: a mapping of topic patterns, with
    ``default_destination`` for the others, or a function. With ``stream`` (or the URL's option), only that stream may
    store it. ``cloud_events`` writes CloudEvents 1.0 instead of the plain headers.


    A message repeated within the stream's ``duplicate_window`` is stored once, and counted in ``duplicates``.
    """

    def __init__(
        self,
        url: str | DispatcherUrl | NatsAddress | None = None,
        *,
        client: Client | None = None,
        stream: str | None = None,
        destinations: DestinationMap[str] | None = None,
        default_destination: str | None = None,
        cloud_events: CloudEvents | Literal["binary", "structured"] | None = None,
        name: str | None = None,
        timeout: float = TIMEOUT,
        connect_timeout: float = CONNECT_TIMEOUT,
        close_timeout: float = CLOSE_TIMEOUT,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        exactly_one(url=url, client=client, options=client_options)
        options = checked_options(client_options, known=KNOWN_OPTIONS, owned=OWNED_OPTIONS)
        check_installed(options)
        events = CloudEvents.of(cloud_events)
        expected = optional_text("stream", stream)
        connector: Connector[Session]
        if client is not None:
            connector, default_name = GivenClient(instance("client", client, Client)), "nats"
        else:
            address = url if isinstance(url, NatsAddress) else NatsAddress.parse(url or "")
            expected = expected or address.stream
            events = events or address.cloud_events
            connector = NatsConnector(address, options, connect_timeout=connect_timeout)
            default_name = address.name
        if expected is not None and (problem := stream_problem(expected)) is not None:
            raise ConfigError(f"stream is {expected!r}: {problem}")
        super().__init__(
            shown_name(name) or default_name,
            connector,
            timeout=timeout,
            connect_timeout=connect_timeout,
            close_timeout=close_timeout,
        )
        self._stream = expected
        self._cloud_events = events
        self._destinations = Destinations(
            destinations, default=default_destination, of_topic=str, check=check_subject
        )
        self.duplicates = 0
        """Messages that the stream had stored before, and acknowledged without storing them again."""

    @classmethod
    def from_url(cls, url: str | DispatcherUrl) -> NatsDispatcher:
        """Make a dispatcher from its URL, with every other argument at its default."""
        return cls(url=url)

    async def publish_window(
        self, client: Session, messages: Sequence[DispatchedMessage], outcomes: list[Outcome], /
    ) -> None:
        subjects: dict[int, str] = {}

        def outcome(index: int, answer: asyncio.Future[Msg]) -> Outcome:
            read = read_answer(answer, subjects[index], self._stream)
            if isinstance(read, Acknowledged):
                self.duplicates += read.duplicate
                return None
            return read

        with Confirmations[Any](outcomes, outcome) as sent:
            for index, message in enumerate(messages):
                try:
                    subjects[index] = subject = self._destinations.of(message.meta.topic)
                    sent[index] = await self._send(client, subject, message)
                except OutboxError as error:
                    outcomes[index] = error
            await sent.wait()

    async def _send(self, client: Session, subject: str, message: DispatchedMessage) -> asyncio.Future[Msg]:
        rendered = render(message, self._cloud_events)
        limit = client.client.max_payload
        if not rendered.fits(limit):
            # The server would not answer, but close the connection for every message on it.
            raise PermanentError(
                f"the message to {subject!r} has {rendered.size} bytes with its headers and the server takes {limit}"
            )
        if self._stream is not None:
            rendered.headers[Header.EXPECTED_STREAM] = self._stream
        try:
            return await client.send(subject, rendered.payload, rendered.headers)
        except Exception as error:  # any error of the client is an outcome
            raise classify(error, subject) from error

    async def look_for(self, topic: str, client: Session, /) -> None:
        """Raise when no stream takes the subject, or another than the one that is asked for."""
        subject = self._destinations.of(topic)
        try:
            stream = await JetStreamContext(client.client).find_stream_name_by_subject(subject)
        except NotFoundError:
            raise ProviderError(f"no stream takes the subject {subject!r}") from None
        except Exception as error:  # any error of the client: there was no answer
            raise unavailable(error) from error
        if self._stream not in (None, stream):
            raise ProviderError(
                f"the subject {subject!r} belongs to the stream {stream}, not to {self._stream}"
            )

    async def ping(self, client: Session, /) -> None:
        try:
            await ping(client.client)
        except OutboxError:
            raise
        except Exception as error:  # any error of the client: there was no answer
            raise unavailable(error) from error
