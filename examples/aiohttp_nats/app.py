"""Customers sign up over HTTP and are stored with asyncpg; their events go to NATS JetStream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import asyncpg
import nats
from aiohttp import web

from examples.environment import address
from outbox_core import Message, Outbox, Relay, schema
from outbox_core.integrations.aiohttp import AppRelays, begin_on, bound, health_routes, outbox_context
from outbox_nats import NatsDispatcher

TABLE: Final = "crm_outbox"
TOPIC: Final = "crm.customer.signed-up.v1"
POOL: Final = web.AppKey("pool", asyncpg.Pool)

outbox = Outbox(TABLE)


async def sign_up(request: web.Request) -> web.Response:
    email = (await request.json())["email"]
    try:
        async with bound(outbox, begin_on(request.app[POOL])) as customers:
            await customers.enqueue(Message(TOPIC, {"email": email}, key=email))
            await customers.tx.execute("INSERT INTO crm_customers VALUES ($1)", email)
    except asyncpg.UniqueViolationError:
        # The transaction is rolled back, and the event that was enqueued in it with it.
        raise web.HTTPConflict(text="signed up already") from None
    return web.json_response({"email": email}, status=201)


def create_app() -> web.Application:
    database_url, nats_url = address("OUTBOX_DATABASE_URL"), address("NATS_URL")
    relays = AppRelays(Relay(database_url, table=TABLE, dispatcher=NatsDispatcher(url=nats_url)))

    async def database(app: web.Application) -> AsyncIterator[None]:
        await schema.upgrade(database_url, TABLE)
        async with asyncpg.create_pool(database_url, min_size=1, max_size=10) as pool:
            await pool.execute("CREATE TABLE IF NOT EXISTS crm_customers (email text PRIMARY KEY)")
            app[POOL] = pool
            yield

    async def stream(_: web.Application) -> AsyncIterator[None]:
        client: Any = await nats.connect(nats_url, max_reconnect_attempts=1)
        await client.jetstream().add_stream(name="crm", subjects=["crm.>"])
        await client.close()
        yield

    app = web.Application()
    app.add_routes([web.post("/customers", sign_up), *health_routes(relays)])
    # The relay comes last: contexts end in the opposite order, so that it stops before what it needs.
    app.cleanup_ctx.extend([database, stream, outbox_context(relays)])
    return app
