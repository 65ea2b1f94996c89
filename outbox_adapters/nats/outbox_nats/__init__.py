"""NATS JetStream for outbox-core."""

from outbox_nats.address import NatsAddress
from outbox_nats.dispatcher import NatsDispatcher
from outbox_nats.rendering import from_msg

__all__ = ["NatsAddress", "NatsDispatcher", "from_msg"]
