"""NATS JetStream for outbox-core."""

from outbox_nats.address import NatsAddress

__all__ = ["NatsAddress"]
