"""One thing to write to each kind of server and to read back, with the client the adapters use."""

from __future__ import annotations

import aio_pika
import nats
import psycopg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.services.kafka import KafkaServer
from tests.services.nats import NatsServer
from tests.services.own_loop import run_async
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.server import Server

_TIMEOUT_S = 15.0


def write(server: Server, name: str, text: str) -> None:
    """Write `text` under `name` and return once the server has confirmed it."""
    match server:
        case PostgresServer():
            with psycopg.connect(server.address, connect_timeout=10) as connection:
                connection.execute(
                    psycopg.sql.SQL("CREATE TABLE {} (t text)").format(psycopg.sql.Identifier(name))
                )
                insert = psycopg.sql.SQL("INSERT INTO {} VALUES (%s)").format(psycopg.sql.Identifier(name))
                connection.execute(insert, [text])
        case KafkaServer():
            server.create_topic(name)
            run_async(lambda: _write_kafka(server.address, name, text), timeout_s=_TIMEOUT_S)
        case NatsServer():
            run_async(lambda: _write_nats(server.address, name, text), timeout_s=_TIMEOUT_S)
        case RabbitMQServer():
            run_async(lambda: _write_rabbitmq(server.address, name, text), timeout_s=_TIMEOUT_S)
        case _:
            raise TypeError(f"no way to write to {server.name}")


def read(server: Server, name: str) -> str:
    """Read back what was written under `name`."""
    match server:
        case PostgresServer():
            with psycopg.connect(server.address, connect_timeout=10) as connection:
                select = psycopg.sql.SQL("SELECT t FROM {}").format(psycopg.sql.Identifier(name))
                row = connection.execute(select).fetchone()
                assert row is not None
                return str(row[0])
        case KafkaServer():
            return run_async(lambda: _read_kafka(server.address, name), timeout_s=_TIMEOUT_S)
        case NatsServer():
            return run_async(lambda: _read_nats(server.address, name), timeout_s=_TIMEOUT_S)
        case RabbitMQServer():
            return run_async(lambda: _read_rabbitmq(server.address, name), timeout_s=_TIMEOUT_S)
        case _:
            raise TypeError(f"no way to read from {server.name}")


async def _write_kafka(address: str, topic: str, text: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address, acks="all")
    await producer.start()
    try:
        await producer.send_and_wait(topic, text.encode())
    finally:
        await producer.stop()


async def _read_kafka(address: str, topic: str) -> str:
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.start()
    try:
        message = await consumer.getone()
        return str(message.value.decode())
    finally:
        await consumer.stop()


async def _write_nats(address: str, name: str, text: str) -> None:
    client = await nats.connect(address)
    try:
        stream = client.jetstream()
        await stream.add_stream(name=name, subjects=[name])
        await stream.publish(name, text.encode())
    finally:
        await client.close()


async def _read_nats(address: str, name: str) -> str:
    client = await nats.connect(address)
    try:
        message = await client.jetstream().get_last_msg(name, name)
        assert message.data is not None
        return message.data.decode()
    finally:
        await client.close()


async def _write_rabbitmq(address: str, name: str, text: str) -> None:
    async with await aio_pika.connect(address) as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.declare_queue(name, durable=True)
        message = aio_pika.Message(text.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, name, mandatory=True)


async def _read_rabbitmq(address: str, name: str) -> str:
    async with await aio_pika.connect(address) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue(name)
        message = await queue.get()
        await message.nack(requeue=True)
        return message.body.decode()
