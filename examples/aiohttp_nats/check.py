"""A client that signs up and a consumer that waits for the event on NATS."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import nats
from aiohttp.test_utils import TestClient, TestServer
from nats.js.api import DeliverPolicy

from examples.aiohttp_nats.app import TOPIC, create_app
from examples.environment import address
from outbox_nats import from_msg


async def check() -> None:
    first, second = (f"{uuid4().hex}@example.org" for _ in range(2))
    async with asyncio.timeout(60), TestClient(TestServer(create_app())) as client:
        broker: Any = await nats.connect(address("NATS_URL"), max_reconnect_attempts=1)
        subscription = await broker.jetstream().subscribe(TOPIC, deliver_policy=DeliverPolicy.NEW)

        assert (await client.post("/customers", json={"email": first})).status == 201
        assert (await client.post("/customers", json={"email": first})).status == 409
        assert (await client.post("/customers", json={"email": second})).status == 201

        seen: list[str] = []
        while second not in seen:
            msg = await subscription.next_msg(timeout=30)
            seen.append(from_msg(msg).json()["email"])
            await msg.ack()
        await broker.close()
        assert seen.count(first) == 1, "an event of a sign-up that was rolled back"
        print(f"{TOPIC} of {first} is on NATS, once: the second try was refused and left nothing")
