"""Messages to NATS JetStream, each acknowledged by a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nats.js.api import PubAck

from outbox_core.adapter.broker import CLOSE_TIMEOUT, CONNECT_TIMEOUT, TIMEOUT, BrokerDispatcher
from outbox_core.adapter.client_options import checked_options, exactly_one
from outbox_core.adapter.destination import DestinationMap, Destinations
from outbox_core.adapter.link import Given
from outbox_core.errors import OutboxError, PermanentError, ProviderError
from outbox_nats.address import NatsAddress
from outbox_nats.classification import classify, not_an_ack, unavailable
from outbox_nats.client import KNOWN_OPTIONS, OWNED_OPTIONS, NatsConnector, Session, is_usable, ping
from outbox_nats.placement import check_subject, place

if TYPE_CHECKING:
    from nats.aio.client import Client

    from outbox_core.adapter.cloud_events import CloudEvents
    from outbox_core.adapter.link import Connector
    from outbox_core.message import DispatchedMessage
    from outbox_core.url import DispatcherUrl


class NatsDispatcher(BrokerDispatcher[Session]):
    """Publishes to JetStream subjects; a message counts as delivered once a stream's acknowledgement is here.

    Give either ``url``, such as ``nats://localhost:4222?stream=ORDERS``, or ``client``, a connected client of the
    application's own, which is used and never closed. ``client_options`` go to `nats.connect` as they are: TLS
    contexts, credentials files, names. Callables for user, password and token are asked at every new connection.

    The subject is the message's topic, or what ``destinations`` says: a mapping of topic patterns, with
    ``default_destination`` for the others, or a function. With ``stream`` (or the URL's option) that stream, and no
    other, must store it. ``cloud_events`` writes CloudEvents 1.0 instead of the plain headers.

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
        cloud_events: CloudEvents | None = None,
        name: str | None = None,
        timeout: float = TIMEOUT,
        connect_timeout: float = CONNECT_TIMEOUT,
        close_timeout: float = CLOSE_TIMEOUT,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        exactly_one(url=url, client=client, options=client_options)
        options = checked_options(client_options, known=KNOWN_OPTIONS, owned=OWNED_OPTIONS)
        connector: Connector[Session]
        if client is not None:
            connector, default_name = Given(Session(client), is_usable, "NATS client"), "nats"
        else:
            address = url if isinstance(url, NatsAddress) else NatsAddress.parse(url or "")
            stream = stream or address.stream
            cloud_events = cloud_events or address.cloud_events
            connector = NatsConnector(address, options, connect_timeout=connect_timeout)
            default_name = address.name
        super().__init__(
            name or default_name,
            connector,
            timeout=timeout,
            connect_timeout=connect_timeout,
            close_timeout=close_timeout,
        )
        self._stream = stream
        self._cloud_events = cloud_events
        self._destinations = Destinations(
            destinations, default=default_destination, of_topic=str, check=check_subject
        )
        self.duplicates = 0
        """Messages that the stream had already and acknowledged without storing them again."""

    @classmethod
    def from_url(cls, url: str | DispatcherUrl) -> NatsDispatcher:
        """A dispatcher with everything but what the URL says at its default."""
        return cls(url=url)

    async def publish(self, client: Session, message: DispatchedMessage, /) -> None:
        subject = self._destinations.of(message.meta.topic)
        placed = place(message, self._cloud_events)
        limit = client.client.max_payload
        if placed.size > limit:
            # The server would not answer, but close the connection on everybody.
            raise PermanentError(
                f"the message to {subject!r} has {placed.size} bytes with its headers and the server takes {limit}"
            )
        try:
            ack: object = await client.acknowledged(
                subject,
                client.stream_context.publish(
                    subject,
                    placed.payload,
                    timeout=self._timeout,
                    stream=self._stream,
                    headers=placed.headers,
                ),
            )
        except ProviderError:
            raise
        except Exception as error:
            raise classify(error, subject, self._stream) from error
        if not isinstance(ack, PubAck) or not ack.stream or not ack.seq:
            raise not_an_ack(subject)
        if ack.duplicate:
            self.duplicates += 1

    async def ping(self, client: Session, /) -> None:
        try:
            await ping(client.client)
        except OutboxError:
            raise
        except Exception as error:
            raise unavailable(error) from error
