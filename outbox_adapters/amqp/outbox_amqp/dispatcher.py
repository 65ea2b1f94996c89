"""The dispatcher to an AMQP 0-9-1 broker: every message is routed to a queue and confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from aio_pika import Connection
from aiormq import spec
from aiormq.exceptions import ChannelNotFoundEntity

from outbox_amqp.address import AmqpAddress
from outbox_amqp.classification import classify, unavailable
from outbox_amqp.client import (
    KNOWN_OPTIONS,
    OWNED_OPTIONS,
    AmqpConnector,
    GivenConnection,
    Session,
    check_exists,
    ping,
)
from outbox_amqp.rendering import AmqpDestination, check_destination, name_problem, render
from outbox_core.adapter.arguments import instance, optional_text, shown_name
from outbox_core.adapter.broker import CLOSE_TIMEOUT, CONNECT_TIMEOUT, TIMEOUT, BrokerDispatcher
from outbox_core.adapter.client_logs import cap_at_info
from outbox_core.adapter.client_options import checked_options, exactly_one
from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.adapter.destination import DestinationMap, Destinations
from outbox_core.adapter.link import Blocked
from outbox_core.adapter.pipeline import publish_each
from outbox_core.errors import ConfigError, OutboxError, ProviderError

if TYPE_CHECKING:
    from outbox_core.adapter.link import Connector
    from outbox_core.dispatcher import Outcome
    from outbox_core.message import DispatchedMessage
    from outbox_core.url import DispatcherUrl


class AmqpDispatcher(BrokerDispatcher[Session]):
    """Publishes to exchanges; a message counts as delivered once a queue has it and the broker has confirmed that.

    Give either ``url``, such as ``amqp://guest:guest@localhost/sales?exchange=events``, or ``client``, an aio-pika
    connection of your application; a channel is opened on it, and it is never closed. ``client_options`` are passed to
    aio-pika unchanged: an SSL context, a heartbeat, client properties. ``login`` and ``password`` may be functions,
    which are called for every new connection.

    The routing key is the message's topic, on ``exchange`` (or the URL's option; otherwise the broker's default one).
    Change this with ``destinations``: a mapping of topic patterns, with ``default_destination`` for the others, or a
    function; each destination is a routing key or a pair of exchange and routing key. ``cloud_events`` writes
    CloudEvents 1.0 instead of the plain headers.

    Messages are persistent and ``mandatory``: one that no queue takes is a failure.
    """

    def __init__(
        self,
        url: str | DispatcherUrl | AmqpAddress | None = None,
        *,
        client: Connection | None = None,
        exchange: str | None = None,
        destinations: DestinationMap[str | tuple[str, str]] | None = None,
        default_destination: str | tuple[str, str] | None = None,
        cloud_events: CloudEvents | Literal["binary", "structured"] | None = None,
        name: str | None = None,
        timeout: float = TIMEOUT,
        connect_timeout: float = CONNECT_TIMEOUT,
        close_timeout: float = CLOSE_TIMEOUT,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        exactly_one(url=url, client=client, options=client_options)
        options = checked_options(client_options, known=KNOWN_OPTIONS, owned=OWNED_OPTIONS)
        events = CloudEvents.of(cloud_events)
        default_exchange = optional_text("exchange", exchange, may_be_empty=True)
        connector: Connector[Session]
        if client is not None:
            connector, default_name = GivenConnection(instance("client", client, Connection)), "amqp"
        else:
            address = url if isinstance(url, AmqpAddress) else AmqpAddress.parse(url or "")
            default_exchange = address.exchange if default_exchange is None else default_exchange
            events = events or address.cloud_events
            connector, default_name = AmqpConnector(address, options), address.name
        if default_exchange and (problem := name_problem(default_exchange)) is not None:
            raise ConfigError(f"exchange {problem}")
        super().__init__(
            shown_name(name) or default_name,
            connector,
            timeout=timeout,
            connect_timeout=connect_timeout,
            close_timeout=close_timeout,
        )
        cap_at_info("aio_pika.exchange", "aiormq.connection", "aiormq.channel")
        self._cloud_events = events
        self._destinations: Destinations[AmqpDestination] = Destinations(
            destinations,
            default=default_destination,
            of_topic=str,
            check=lambda value: check_destination(value, default_exchange or ""),
        )

    @classmethod
    def from_url(cls, url: str | DispatcherUrl) -> AmqpDispatcher:
        """Make a dispatcher from its URL, with every other argument at its default."""
        return cls(url=url)

    async def publish_window(
        self, client: Session, messages: Sequence[DispatchedMessage], outcomes: list[Outcome], /
    ) -> None:
        await publish_each(partial(self._publish, client), messages, outcomes)

    async def _publish(self, client: Session, message: DispatchedMessage) -> None:
        destination = self._destinations.of(message.meta.topic)
        rendered = render(message, self._cloud_events)
        _check_blocked(client)
        try:
            confirmation = await client.publish(destination, rendered)
        except asyncio.CancelledError:
            _check_blocked(client)
            raise
        except Exception as error:  # any error of the client is an outcome
            # Not chained: aiormq's errors hold the returned message, with its body.
            raise classify(error, destination, connected=client.is_connected) from None
        if not isinstance(confirmation, spec.Basic.Ack):
            raise ProviderError(f"the broker did not confirm the message: {destination}")

    async def look_for(self, topic: str, client: Session, /) -> None:
        """Raise when there is no such exchange or, on the default one, queue. Bindings cannot be queried."""
        destination = self._destinations.of(topic)
        try:
            await check_exists(client, destination.exchange, destination.routing_key)
        except ChannelNotFoundEntity:
            what = "exchange" if destination.exchange else "queue"
            raise ProviderError(f"there is no such {what}: {destination}") from None
        except Exception as error:  # any error of the client: there was no answer
            raise unavailable(error) from None

    async def ping(self, client: Session, /) -> None:
        _check_blocked(client)
        try:
            await ping(client)
        except OutboxError:
            raise
        except Exception as error:  # any error of the client: there was no answer
            raise unavailable(error) from None


def _check_blocked(client: Session) -> None:
    if client.is_blocked:
        raise Blocked(
            "the broker blocks publishers (connection.blocked): it is short of disk or memory"
        ) from None
