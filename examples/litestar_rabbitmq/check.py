"""A client that pays and a consumer that takes the events from the queue."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import aio_pika
from litestar.testing import AsyncTestClient

from examples.litestar_rabbitmq.app import QUEUE, TOPIC, amqp_url, app
from outbox_amqp import from_message


async def check() -> None:
    refused, paid = str(uuid4()), str(uuid4())
    async with (
        asyncio.timeout(60),
        AsyncTestClient(app) as client,
        await aio_pika.connect(amqp_url) as broker,
    ):
        response = await client.post("/payments", json={"invoice": refused, "cents": 0})
        assert response.status_code == 422, response.text
        response = await client.post("/payments", json={"invoice": paid, "cents": 1250})
        assert response.status_code == 201, response.text

        queue = await (await broker.channel()).get_queue(QUEUE)
        async with queue.iterator() as arriving:
            async for incoming in arriving:
                async with incoming.process():
                    event = from_message(incoming).json()
                assert event["invoice"] != refused, "an event of a payment that was rolled back"
                if event["invoice"] == paid:
                    break
        print(f"{TOPIC} of invoice {paid} was in RabbitMQ; the refused payment left nothing")
