"""RabbitMQ and other AMQP 0-9-1 brokers for outbox-core."""

from outbox_amqp.address import AmqpAddress

__all__ = ["AmqpAddress"]
