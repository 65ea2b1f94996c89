"""The consumer: ships each order once, however often its event comes."""

from __future__ import annotations

import json
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

import anyio

from outbox_core.demo.database import query, session
from outbox_core.extras import needs_extra
from outbox_core.headers import EVENT_ID

with needs_extra("nats", feature="the demonstration"):
    from nats.aio.client import Client
    from nats.errors import Error as NatsError
    from nats.js import JetStreamContext
    from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

if TYPE_CHECKING:
    from asyncpg import Connection
    from nats.aio.msg import Msg

    from outbox_core.demo.stage import Figures

STREAM: Final = "orders"
_CONSUMER: Final = "warehouse"
_BATCH: Final = 200
_FETCH_TIMEOUT: Final = 0.5
_ACK_WAIT: Final = 4.0
_CONNECT_TIMEOUT: Final = 5
_ANSWER_TIMEOUT: Final = 2.0
_CLOSE_TIMEOUT: Final = 2.0
# JetStream hides what is repeated within two minutes. Other brokers do not, and the demonstration is to show what a
# consumer must expect from any of them: 100 ms is the shortest that the server accepts.
_DUPLICATE_WINDOW: Final = 0.1


class Warehouse:
    """A durable consumer of the stream of orders, which it also makes."""

    def __init__(self, nats_url: str, database_url: str, figures: Figures) -> None:
        self._nats_url = nats_url
        self._database_url = database_url
        self._figures = figures
        self._client = Client()

    @property
    def _stream(self) -> Any:
        return JetStreamContext(self._client, timeout=_ANSWER_TIMEOUT)

    async def __aenter__(self) -> Self:
        await self._client.connect(
            self._nats_url,
            connect_timeout=_CONNECT_TIMEOUT,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            error_cb=_unheard,
        )
        await self._stream.add_stream(
            StreamConfig(name=STREAM, subjects=[f"{STREAM}.>"], duplicate_window=_DUPLICATE_WINDOW)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await self._client.close()

    async def run(self) -> None:
        """Ship what comes, until cancelled."""
        settings = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=_ACK_WAIT, max_ack_pending=5000)
        subscription = await self._stream.pull_subscribe(
            f"{STREAM}.>", durable=_CONSUMER, stream=STREAM, config=settings
        )
        async with session(self._database_url) as connection:
            while True:
                try:
                    messages = await subscription.fetch(_BATCH, timeout=_FETCH_TIMEOUT)
                except TimeoutError:
                    continue
                await self._ship(connection, messages)

    async def caught_up(self) -> bool:
        """Whether the stream holds nothing that this consumer has not taken in and confirmed."""
        try:
            info = await self._stream.consumer_info(STREAM, _CONSUMER)
        except (TimeoutError, NatsError):
            return False
        return not info.num_pending and not info.num_ack_pending

    async def _ship(self, connection: Connection, messages: list[Msg]) -> None:
        ids = [UUID((message.headers or {})[EVENT_ID]) for message in messages]
        cents = [int(json.loads(message.data)["cents"]) for message in messages]
        # The effect is committed before the broker hears of it: a crash in between costs a repetition, not an order.
        new = await connection.fetch(query("insert_shipments"), ids, cents)
        self._figures.consumed += len(new)
        self._figures.duplicates += len(messages) - len(new)
        for message in messages:
            await message.ack()


async def _unheard(error: Exception) -> None:
    """A frozen broker is part of the show; the client's default would print it."""
    del error
