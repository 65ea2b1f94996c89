"""Messages to Apache Kafka, each stored by all in-sync replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiokafka.structs import RecordMetadata

from outbox_core.adapter.broker import CLOSE_TIMEOUT, CONNECT_TIMEOUT, TIMEOUT, BrokerDispatcher
from outbox_core.adapter.client_logs import cap_at_info
from outbox_core.adapter.client_options import checked_options, exactly_one
from outbox_core.adapter.destination import DestinationMap, Destinations
from outbox_core.adapter.link import Given
from outbox_core.errors import OutboxError, ProviderError
from outbox_kafka.address import KafkaAddress
from outbox_kafka.classification import classify_delivery, classify_sending, unavailable
from outbox_kafka.client import (
    KNOWN_OPTIONS,
    OWNED_OPTIONS,
    KafkaConnector,
    Session,
    check_given,
    is_usable,
    ping,
)
from outbox_kafka.placement import check_topic_name, place

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

    from outbox_core.adapter.cloud_events import CloudEvents
    from outbox_core.adapter.link import Connector
    from outbox_core.message import DispatchedMessage
    from outbox_core.url import DispatcherUrl


class KafkaDispatcher(BrokerDispatcher[Session]):
    """Writes to Kafka topics; a message counts as delivered once all in-sync replicas have it (``acks=all``).

    Give either ``url``, such as ``kafka://localhost:9092``, or ``client``, a started producer of the application's
    own, with ``acks="all"`` and ``enable_idempotence=True``, which is used and never closed. ``client_options`` go to
    `AIOKafkaProducer` as they are: an SSL context, SASL, compression, batching. ``sasl_plain_username`` and
    ``sasl_plain_password`` may be functions: they are asked at every new connection.

    The Kafka topic is the message's topic, or what ``destinations`` says: a mapping of topic patterns, with
    ``default_destination`` for the others, or a function. The record's key is the message's ``key``, or its
    ``event_id`` when it has none, or always with ``key_by_event_id``. ``cloud_events`` writes CloudEvents 1.0 instead
    of the plain headers.
    """

    def __init__(
        self,
        url: str | DispatcherUrl | KafkaAddress | None = None,
        *,
        client: AIOKafkaProducer | None = None,
        key_by_event_id: bool = False,
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
            connector, default_name = Given(check_given(client), is_usable, "Kafka producer"), "kafka"
        else:
            address = url if isinstance(url, KafkaAddress) else KafkaAddress.parse(url or "")
            cloud_events = cloud_events or address.cloud_events
            connector, default_name = KafkaConnector(address, options), address.name
        super().__init__(
            name or default_name,
            connector,
            timeout=timeout,
            connect_timeout=connect_timeout,
            close_timeout=close_timeout,
        )
        cap_at_info("aiokafka.conn", "aiokafka.producer.producer")
        self._key_by_event_id = key_by_event_id
        self._cloud_events = cloud_events
        self._destinations = Destinations(
            destinations, default=default_destination, of_topic=str, check=check_topic_name
        )

    @classmethod
    def from_url(cls, url: str | DispatcherUrl) -> KafkaDispatcher:
        """A dispatcher with everything but what the URL says at its default."""
        return cls(url=url)

    async def publish(self, client: Session, message: DispatchedMessage, /) -> None:
        topic = self._destinations.of(message.meta.topic)
        placed = place(message, self._cloud_events, key_by_event_id=self._key_by_event_id)
        try:
            await client.find(topic)
            future = await client.producer.send(
                topic, value=placed.value, key=placed.key, headers=placed.headers
            )
        except OutboxError:
            raise
        except Exception as error:
            raise classify_sending(error, topic) from error
        try:
            record: object = await future
        except Exception as error:
            raise classify_delivery(error, topic) from error
        if not isinstance(record, RecordMetadata):
            raise ProviderError(f"the broker did not say where in the topic {topic!r} it stored the message")

    async def ping(self, client: Session, /) -> None:
        try:
            await ping(client.producer)
        except OutboxError:
            raise
        except Exception as error:
            raise unavailable(error) from error
