"""Start and stop a Kafka producer."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from aiokafka import AIOKafkaProducer
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, ProducerClosed
from aiokafka.protocol.metadata import MetadataRequest

from outbox_core.errors import ConfigError
from outbox_kafka.classification import NotKafka, classify_sending, unavailable, unknown_topic

if TYPE_CHECKING:
    from outbox_core.adapter.link import Lost
    from outbox_kafka.address import KafkaAddress

KNOWN_OPTIONS: Final = frozenset(inspect.signature(AIOKafkaProducer).parameters)
OWNED_OPTIONS: Final[Mapping[str, str]] = {
    "acks": "a message is delivered once all in-sync replicas have it",
    "api_version": "aiokafka does not use it any more",
    "bootstrap_servers": "the servers are in the url",
    "enable_idempotence": "the producer is idempotent",
    "key_serializer": "keys are sent unchanged",
    "loop": "the running event loop is used",
    "transaction_timeout_ms": "transactions are not used",
    "transactional_id": "transactions are not used",
    "value_serializer": "payloads are sent unchanged",
}
REQUEST_TIMEOUT_MS: Final = 10_000
MAX_BATCH_BYTES: Final = 256 * 1024
"""aiokafka's default of 16 KiB fits about 20 messages; the rest of a window would wait for the next batch."""
METADATA_SECONDS: Final = 2.0
"""Seconds to wait for the metadata of a topic that the client does not know."""
REMEMBERED_SECONDS: Final = 5.0
"""Seconds for which a topic that was not found counts as missing, without another request."""

_SEND: Final = "_send_produce_req"
_DIAGNOSTIC_TRIES: Final = 3
_DIAGNOSTIC_PAUSE_SECONDS: Final = 0.2


class Session:
    """A started producer, and the topics that it did not find."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self.producer: Any = producer  # aiokafka's methods have no annotations
        self.requests: set[asyncio.Task[Any]] = set()
        """The tasks that send batches; empty for a producer of the application."""
        self._missing: dict[str, float] = {}

    def track_requests(self) -> None:
        """Keep the tasks that send batches: the producer abandons them when it stops."""
        sender: Any = getattr(self.producer, "_sender", None)
        send: Any = getattr(sender, _SEND, None)

        async def tracked(*arguments: Any) -> None:
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            self.requests.add(task)
            try:
                await send(*arguments)
            finally:
                self.requests.discard(task)

        if send is not None:
            setattr(sender, _SEND, tracked)

    async def find(self, topic: str) -> None:
        """Return once the topic's partitions are known. Raises `ProviderError` when the cluster has no such topic.

        aiokafka's producer itself would wait for ``request_timeout_ms``, and hold up the rest of the window.
        """
        if self.producer.client.cluster.partitions_for_topic(topic) is not None:
            return
        if time.monotonic() < self._missing.get(topic, 0.0):
            raise unknown_topic(topic)
        try:
            async with asyncio.timeout(METADATA_SECONDS):
                await self.producer.partitions_for(topic)
        except TimeoutError:
            await self._check_answering(topic)  # without any answer, the topic may well exist
            self._missing[topic] = time.monotonic() + REMEMBERED_SECONDS
            raise unknown_topic(topic) from None
        except Exception as error:  # any error of the client is an outcome
            raise classify_sending(error, topic) from error

    async def _check_answering(self, topic: str) -> None:
        try:
            await ping(self.producer)
        except Exception as error:  # any error of the client is an outcome
            raise classify_sending(error, topic) from error


class KafkaConnector:
    """Starts an idempotent producer that waits for all in-sync replicas."""

    def __init__(self, address: KafkaAddress, options: Mapping[str, Any]) -> None:
        self._address = address
        self._options = options

    async def connect(self, _lost: Lost, /) -> Session:
        arguments: dict[str, Any] = {
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "max_batch_size": MAX_BATCH_BYTES,
            **self._address.client_arguments(),
            **self._options,
            "acks": "all",
            "enable_idempotence": True,
        }
        for name in ("sasl_plain_username", "sasl_plain_password"):
            if callable(arguments.get(name)):
                arguments[name] = arguments[name]()
        session = Session(AIOKafkaProducer(**arguments))
        session.track_requests()
        try:
            await session.producer.start()
        except KafkaConnectionError as error:
            await _clean_up(session)
            raise unavailable(await _reason(arguments, error), self._address.name) from None
        except Exception as error:  # any error of the client: there is no working connection
            await _clean_up(session)
            raise unavailable(error, self._address.name) from None
        except BaseException:  # a cancellation, too, must leave nothing open
            await _clean_up(session)
            raise
        return session

    def usable(self, client: Session, /) -> bool:
        return is_usable(client)

    async def close(self, client: Session, /) -> None:
        await client.producer.stop()

    def abort(self, client: Session, /) -> None:
        _abort(client)


def is_usable(session: Session) -> bool:
    """True while the producer's sender task is running; without it nothing is ever sent."""
    sender: Any = getattr(session.producer, "_sender", None)
    task: Any = getattr(sender, "sender_task", None)
    return task is not None and not task.done() and not getattr(session.producer, "_closed", False)


def check_given(producer: AIOKafkaProducer) -> Session:
    """Refuse an application's producer that gives weaker guarantees or changes what is sent."""
    sender: Any = getattr(producer, "_sender", None)
    transactions: Any = getattr(producer, "_txn_manager", None)
    if getattr(sender, "_acks", -1) != -1:
        raise ConfigError(
            "the producer given as client= must have acks='all', or an acknowledged message may be lost"
        )
    if transactions is None:
        raise ConfigError("the producer given as client= must have enable_idempotence=True")
    if transactions.transactional_id is not None:
        raise ConfigError(
            "the producer given as client= is transactional, and what it sends would not be committed"
        )
    for name in ("_key_serializer", "_value_serializer"):
        if getattr(producer, name, None) is not None:
            raise ConfigError(
                f"the producer given as client= has a {name[1:]}; keys and payloads are bytes already"
            )
    return Session(producer)


async def ping(producer: Any) -> None:
    """Make a round trip: request the metadata of no topic, from any broker."""
    client = producer.client
    node = client.get_random_node()
    if node is None:
        raise NodeNotReadyError("no broker of the cluster is known")
    await client.send(node, MetadataRequest([]))


async def _reason(arguments: Mapping[str, Any], error: Exception) -> Exception:
    """Find out why a producer could not start: it logs the reason, and always raises the same error.

    A broker that refuses a login may close the connection before it answers, hence more than one try. A server that
    closes the connection every time is not a Kafka broker, or expects another kind of client.
    """
    names = inspect.signature(AIOKafkaConnection).parameters
    options: dict[str, Any] = {"sasl_mechanism": "PLAIN"}
    options |= {name: value for name, value in arguments.items() if name in names}
    host, _, port = str(arguments["bootstrap_servers"]).split(",")[0].rpartition(":")
    for _ in range(_DIAGNOSTIC_TRIES):
        connection: Any = AIOKafkaConnection(host.strip("[]"), int(port), **options)
        try:
            await connection.connect()
        except KafkaConnectionError:
            await asyncio.sleep(_DIAGNOSTIC_PAUSE_SECONDS)
        except Exception as reason:  # any other error is the reason
            return reason
        else:
            return error
        finally:
            connection.close()
    return NotKafka()


async def _clean_up(session: Session) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(1):
            await session.producer.stop()
    _abort(session)


def _abort(session: Session) -> None:
    """End every task and connection of a producer at once: its own `stop` would wait for an unavailable broker."""
    producer = session.producer
    client = producer.client
    settled = asyncio.get_running_loop().create_future()
    settled.set_result(False)
    client.force_metadata_update = lambda: settled
    update: Any = getattr(client, "_md_update_fut", None)
    if update is not None and not update.done():
        update.set_result(False)
    accumulator: Any = getattr(producer, "_message_accumulator", None)
    if accumulator is not None:
        accumulator.fail_all(ProducerClosed())
    sender: Any = getattr(producer, "_sender", None)
    tasks = (getattr(client, "_sync_task", None), getattr(sender, "sender_task", None), *session.requests)
    for task in tasks:
        if task is not None:
            task.cancel()
    connections: Mapping[Any, Any] = getattr(client, "_conns", {})
    for connection in tuple(connections.values()):
        writer: Any = getattr(connection, "_writer", None)
        if writer is not None:
            writer.transport.abort()
        connection.close()
