"""RabbitMQ and other AMQP 0-9-1 brokers for outbox-core."""

from outbox_amqp.address import AmqpAddress
from outbox_amqp.dispatcher import AmqpDispatcher
from outbox_amqp.rendering import AmqpDestination, from_message

__all__ = ["AmqpAddress", "AmqpDestination", "AmqpDispatcher", "from_message"]
