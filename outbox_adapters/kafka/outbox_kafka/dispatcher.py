"""The dispatcher to Apache Kafka: every message is stored by all in-sync replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import anyio
from aiokafka import AIOKafkaProducer

from outbox_core.adapter.arguments import flag, instance, shown_name
from outbox_core.adapter.broker import CLOSE_TIMEOUT, CONNECT_TIMEOUT, TIMEOUT, BrokerDispatcher
from outbox_core.adapter.client_logs import cap_at_info
from outbox_core.adapter.client_options import checked_options, exactly_one
from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.adapter.destination import DestinationMap, Destinations
from outbox_core.adapter.link import Given
from outbox_core.adapter.pipeline import Confirmations
from outbox_core.errors import OutboxError, PermanentError
from outbox_kafka.address import KafkaAddress
from outbox_kafka.classification import classify_sending, delivery, unavailable
from outbox_kafka.client import (
    KNOWN_OPTIONS,
    OWNED_OPTIONS,
    KafkaConnector,
    Session,
    check_given,
    is_usable,
    ping,
)
from outbox_kafka.rendering import check_topic_name, render

if TYPE_CHECKING:
    from outbox_core.adapter.link import Connector
    from outbox_core.dispatcher import Outcome
    from outbox_core.message import DispatchedMessage
    from outbox_core.url import DispatcherUrl


class KafkaDispatcher(BrokerDispatcher[Session]):
    """Writes to Kafka topics; a message counts as delivered once all in-sync replicas have it (``acks=all``).

    Give either ``url``, such as ``kafka://localhost:9092``, or ``client``, a started producer of your application with
    ``acks="all"`` and ``enable_idempotence=True``, which is used and never closed. ``client_options`` are passed to
    `AIOKafkaProducer` unchanged: an SSL context, SASL, compression, batching. ``sasl_plain_username`` and
    ``sasl_plain_password`` may be functions, which are called for every new connection.

    The Kafka topic is the message's topic. Change this with ``destinations``: a mapping of topic patterns, with
    ``default_destination`` for the others, or a function. The record's key is the message's ``key``; it is the
    ``event_id`` for a message without a key, and for every message with ``key_by_event_id``. ``cloud_events`` writes
    CloudEvents 1.0 instead of the plain headers.
    """

    def __init__(
        self,
        url: str | DispatcherUrl | KafkaAddress | None = None,
        *,
        client: AIOKafkaProducer | None = None,
        key_by_event_id: bool = False,
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
        events = CloudEvents.of(cloud_events)
        connector: Connector[Session]
        if client is not None:
            connector, default_name = (
                Given(check_given(instance("client", client, AIOKafkaProducer)), is_usable, "Kafka producer"),
                "kafka",
            )
        else:
            address = url if isinstance(url, KafkaAddress) else KafkaAddress.parse(url or "")
            events = events or address.cloud_events
            connector, default_name = KafkaConnector(address, options), address.name
        super().__init__(
            shown_name(name) or default_name,
            connector,
            timeout=timeout,
            connect_timeout=connect_timeout,
            close_timeout=close_timeout,
        )
        cap_at_info("aiokafka.conn", "aiokafka.producer.producer")
        self._key_by_event_id = flag("key_by_event_id", key_by_event_id)
        self._cloud_events = events
        self._destinations = Destinations(
            destinations, default=default_destination, of_topic=str, check=check_topic_name
        )

    @classmethod
    def from_url(cls, url: str | DispatcherUrl) -> KafkaDispatcher:
        """Make a dispatcher from its URL, with every other argument at its default."""
        return cls(url=url)

    async def publish_window(
        self, client: Session, messages: Sequence[DispatchedMessage], outcomes: list[Outcome], /
    ) -> None:
        by_topic: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            try:
                by_topic.setdefault(self._destinations.of(message.meta.topic), []).append(index)
            except OutboxError as error:
                outcomes[index] = error
        # A topic whose metadata is requested, or whose leader is unavailable, holds up only its own messages.
        async with anyio.create_task_group() as topics:
            for topic, indexes in by_topic.items():
                window = {index: messages[index] for index in indexes}
                topics.start_soon(self._publish_to, client, topic, window, outcomes)

    async def _publish_to(
        self, client: Session, topic: str, window: Mapping[int, DispatchedMessage], outcomes: list[Outcome]
    ) -> None:
        """Publish one after another: aiokafka lets each of many concurrent sends wait on a timer for a batch."""
        waiting = iter(window.items())
        with Confirmations[object](outcomes, lambda _, future: delivery(future, topic)) as sent:
            try:
                await client.find(topic)
                for index, message in waiting:
                    try:
                        sent[index] = await self._send(client, topic, message)
                    except PermanentError as error:
                        outcomes[index] = error
                    except OutboxError as error:
                        outcomes[index] = error
                        raise
            except OutboxError as error:  # of the topic or the broker: the messages after it would fail, too
                for index, _ in waiting:
                    outcomes[index] = error
            await sent.wait()

    async def _send(self, client: Session, topic: str, message: DispatchedMessage) -> asyncio.Future[object]:
        rendered = render(message, self._cloud_events, key_by_event_id=self._key_by_event_id)
        try:
            future: asyncio.Future[object] = await client.producer.send(
                topic, value=rendered.value, key=rendered.key, headers=rendered.headers
            )
        except Exception as error:  # any error of the client is an outcome
            raise classify_sending(error, topic) from error
        return future

    async def look_for(self, topic: str, client: Session, /) -> None:
        """Raise when the cluster has no such Kafka topic. A cluster that creates topics on demand may create it now."""
        name = self._destinations.of(topic)
        try:
            await client.find(name)
        except OutboxError:
            raise
        except Exception as error:  # any error of the client: there was no answer
            raise classify_sending(error, name) from error

    async def ping(self, client: Session, /) -> None:
        try:
            await ping(client.producer)
        except OutboxError:
            raise
        except Exception as error:  # any error of the client: there was no answer
            raise unavailable(error) from error
