"""Where the servers are: every example asks the environment."""

from __future__ import annotations

import os

_LOOK_LIKE = {
    "OUTBOX_DATABASE_URL": "postgresql://user:password@localhost/shop",
    "KAFKA_URL": "kafka://localhost:9092",
    "NATS_URL": "nats://localhost:4222",
    "AMQP_URL": "amqp://guest:guest@localhost:5672/",
}


def address(variable: str) -> str:
    """The address in a variable of the environment; without it the program ends, and says what to set."""
    value = os.environ.get(variable, "").strip()
    if not value:
        raise SystemExit(f"{variable} is not set: it must be an address such as {_LOOK_LIKE[variable]}")
    return value
