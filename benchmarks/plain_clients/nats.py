"""nats-py, with one inbox for all acknowledgements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.aio.client import Client as NatsClient

from benchmarks.plain_clients import TOPIC, Client
from outbox_core.headers import to_headers
from outbox_core.meta import DispatchedMessage


class JetStream:
    """Publishes with a place in one inbox to answer to, as JetStream's protocol has it."""

    def __init__(self, connection: NatsClient) -> None:
        self._connection = connection
        self._inbox = f"{connection.new_inbox()}."
        self._open = 0
        self._refused: list[bytes] = []
        self._answer = asyncio.Event()

    async def start(self) -> JetStream:
        await self._connection.subscribe(f"{self._inbox}*", cb=self._answered)
        return self

    def ready(self, message: DispatchedMessage, /) -> Any:
        return message.payload, to_headers(message) | {"Nats-Msg-Id": str(message.meta.event_id)}

    async def publish(self, messages: Sequence[Any], window: int, /) -> None:
        for number, (payload, headers) in enumerate(messages):
            await self._fewer_than(window)
            self._open += 1
            await self._connection.publish(TOPIC, payload, reply=f"{self._inbox}{number}", headers=headers)
        await self._fewer_than(1)
        if self._refused:
            raise RuntimeError(f"{len(self._refused)} messages were not stored: {self._refused[0]!r}")

    async def _fewer_than(self, window: int) -> None:
        while self._open >= window:
            self._answer.clear()
            await self._answer.wait()

    async def _answered(self, answer: Any) -> None:
        self._open -= 1
        if not json.loads(answer.data or b"{}").get("seq"):
            self._refused.append(answer.data)
        self._answer.set()


@asynccontextmanager
async def connected(address: str) -> AsyncGenerator[Client]:
    connection = await nats.connect(address)
    try:
        yield await JetStream(connection).start()
    finally:
        await connection.close()
