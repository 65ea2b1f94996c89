"""The four kinds of servers by name."""

from __future__ import annotations

from tests.services.kafka import KafkaServer
from tests.services.nats import NatsServer
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.server import Server

KINDS: dict[str, type[Server]] = {
    kind.name: kind for kind in (PostgresServer, KafkaServer, NatsServer, RabbitMQServer)
}
