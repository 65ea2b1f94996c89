"""A client that places orders and a consumer that waits for their events on Kafka."""

from __future__ import annotations

import asyncio

import httpx
from aiokafka import AIOKafkaConsumer

from examples.fastapi_kafka.app import TOPIC, app, kafka_url
from outbox_kafka import KafkaAddress, from_record


async def check() -> None:
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=KafkaAddress.parse(kafka_url).bootstrap_servers,
        auto_offset_reset="earliest",
    )
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")
    async with asyncio.timeout(60), app.router.lifespan_context(app), client, consumer:
        refused = await client.post("/orders", json={"product": "refused tea", "quantity": 1000})
        assert refused.status_code == 409, refused.text
        placed = await client.post("/orders", json={"product": "tea", "quantity": 2})
        assert placed.status_code == 201, placed.text

        async for record in consumer:
            message = from_record(record)
            event = message.json()
            assert event["product"] != "refused tea", "an event of an order that was rolled back"
            if event["order"] == placed.json()["id"]:
                break
        print(f"{message.meta.topic} of order {message.meta.key} is on Kafka; the refused order left nothing")
