"""The brokers' own clients at their best, with nothing but messages to send: the rate that no relay can pass for long.

Messages are made ready before the clock starts, down to what the client's lowest public call takes. Then as many as the
window holds are on their way at any time, each acknowledgement makes room for the next message, and all are awaited.
What the adapters do to make a client quick is done here too: one inbox for JetStream's acknowledgements instead of a
request for each message, AMQP below aio-pika's messages with writes gathered, large batches for Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, Protocol

from outbox_core.meta import DispatchedMessage

TOPIC = "shop.order.placed.v1"
STREAM = "SHOP"


class Client(Protocol):
    """A connected client of one broker."""

    def ready(self, message: DispatchedMessage, /) -> Any:
        """The message as the client takes it, with the very bytes that the adapter sends."""
        ...

    async def publish(self, messages: Sequence[Any], window: int, /) -> None:
        """Send messages made ready, so many on their way at a time; return when each has been acknowledged."""
        ...


def connected(kind: str, address: str) -> AbstractAsyncContextManager[Client]:
    """A client of the kind of broker. Only its own library is loaded: a process for each arm begins with that."""
    client: AbstractAsyncContextManager[Client] = import_module(f"{__name__}.{kind}").connected(address)
    return client
