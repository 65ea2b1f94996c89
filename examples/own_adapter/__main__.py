"""Deliver to a receiver that is busy at first, takes one message then, and refuses the other for good."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg
from aiohttp import web

from examples.environment import address
from examples.own_adapter.webhook import WebhookDispatcher
from outbox_core import DispatchedMessage, Message, Outbox, Relay, State, schema
from outbox_core.headers import from_headers

TABLE: Final = "alerts_outbox"
FIRE: Final = "alerts.alarm.raised.v1"
DRILL: Final = "alerts.drill.begun.v1"

outbox = Outbox(TABLE)


class Receiver:
    """The other side. What it gets back from the headers is what was dispatched."""

    def __init__(self) -> None:
        self.requests = 0
        self.taken: list[DispatchedMessage] = []
        self.refused: list[DispatchedMessage] = []
        self.has_answered_both = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.requests += 1
        if self.requests == 1:
            return web.Response(status=429, headers={"retry-after": "1"})
        message = from_headers(request.headers, await request.read())
        wanted = message.meta.topic == FIRE
        (self.taken if wanted else self.refused).append(message)
        if self.taken and self.refused:
            self.has_answered_both.set()
        return web.Response(status=204 if wanted else 422)


async def serve(receiver: Receiver) -> tuple[web.AppRunner, int]:
    app = web.Application()
    app.router.add_post("/alerts", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


async def main() -> None:
    database_url = address("OUTBOX_DATABASE_URL")
    await schema.upgrade(database_url, TABLE)
    connection = await asyncpg.connect(database_url)
    receiver = Receiver()
    runner, port = await serve(receiver)

    fire, drill = Message(FIRE, {"floor": 3}), Message(DRILL, {"floor": 3})
    relay = Relay(
        database_url, table=TABLE, dispatcher=WebhookDispatcher(f"webhook://127.0.0.1:{port}/alerts")
    )
    async with asyncio.timeout(60), relay:
        async with connection.transaction():
            await outbox.enqueue_many(connection, [fire, drill])
        await receiver.has_answered_both.wait()
    # Leaving the block stops the relay, which puts on record what became of the messages.
    await runner.cleanup()

    refused = await outbox.get(connection, drill.event_id)
    await connection.close()
    assert [message.meta.event_id for message in receiver.taken] == [fire.event_id]
    assert refused is not None
    assert refused.state is State.DEAD
    print(
        f"{FIRE} was taken at attempt {receiver.taken[0].meta.attempts}; {DRILL} is dead: {refused.last_error}"
    )


if __name__ == "__main__":
    asyncio.run(main())
