"""Apache Kafka for outbox-core."""

from outbox_kafka.address import KafkaAddress

__all__ = ["KafkaAddress"]
