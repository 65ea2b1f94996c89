"""Apache Kafka for outbox-core."""

from outbox_kafka.address import KafkaAddress
from outbox_kafka.dispatcher import KafkaDispatcher
from outbox_kafka.rendering import from_record

__all__ = ["KafkaAddress", "KafkaDispatcher", "from_record"]
