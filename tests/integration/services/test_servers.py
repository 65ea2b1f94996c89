"""Every server keeps the contract: what the fault tests rely on is tested here, on the real thing."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import UnknownTopicOrPartitionError

from tests.integration.services import records
from tests.services import process
from tests.services.kafka import KafkaServer
from tests.services.nats import NatsServer
from tests.services.own_loop import run_async
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.server import Server


@pytest.fixture(params=["private_postgres", "private_kafka", "private_nats", "private_rabbitmq"])
def private_server(request: pytest.FixtureRequest) -> Server:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, Server)
    return server


@pytest.fixture(params=["postgres_server", "kafka_server", "nats_server", "rabbitmq_server"])
def shared_server(request: pytest.FixtureRequest) -> Server:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, Server)
    return server


@pytest.mark.timeout(150)
def test_data_survives_freezing_killing_and_restarting(private_server: Server, unique_name: str) -> None:
    server = private_server
    address = server.address
    records.write(server, unique_name, "still here")
    assert records.read(server, unique_name) == "still here"

    server.freeze()
    began = time.monotonic()
    with pytest.raises(server.not_ready):
        server.round_trip(timeout_s=2.0)
    assert time.monotonic() - began < 10.0
    server.thaw()
    assert records.read(server, unique_name) == "still here"

    server.freeze()
    processes = server.processes
    server.kill()
    assert processes
    assert not [member for member in processes if member.alive]
    with pytest.raises(server.not_ready):
        server.round_trip(timeout_s=2.0)

    server.restart()
    assert server.address == address
    assert records.read(server, unique_name) == "still here"

    server.restart()
    assert records.read(server, unique_name) == "still here"
    server.stop()
    server.stop()
    assert server.processes == []


def test_a_shared_server_serves_several_tests(shared_server: Server, unique_name: str) -> None:
    records.write(shared_server, unique_name, "shared")
    assert records.read(shared_server, unique_name) == "shared"
    assert shared_server.version != "unknown" or not shared_server.processes
    assert shared_server.start_seconds > 0


@pytest.mark.asyncio
async def test_a_server_restarts_inside_an_async_test(private_nats: NatsServer) -> None:
    await asyncio.to_thread(private_nats.restart)
    private_nats.round_trip(timeout_s=5.0)


def test_killing_postgres_takes_its_backends_along(private_postgres: PostgresServer) -> None:
    with psycopg.connect(private_postgres.address) as connection:
        backend = connection.info.backend_pid
        family = private_postgres.processes
        assert backend in [member.pid for member in family]
        private_postgres.kill()
        assert process.wait_until_gone(family, timeout_s=0) == []
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_private_postgres_is_durable_and_the_shared_one_is_fast(
    private_postgres: PostgresServer, postgres_server: PostgresServer
) -> None:
    with psycopg.connect(private_postgres.address) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
    if postgres_server.processes:
        with psycopg.connect(postgres_server.address) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("off",)


def test_kafka_topics_are_not_created_by_accident(kafka_server: KafkaServer, unique_name: str) -> None:
    async def error_code() -> int:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka_server.address)
        try:
            await admin.start()
            (topic,) = await admin.describe_topics([unique_name])
            return int(topic["error_code"])
        finally:
            await admin.close()

    for _ in range(2):
        assert run_async(error_code, timeout_s=10.0) == UnknownTopicOrPartitionError.errno
    kafka_server.create_topic(unique_name, partitions=3)
    kafka_server.create_topic(unique_name, partitions=3)
    assert run_async(error_code, timeout_s=10.0) == 0


def test_rabbitmq_is_controlled_through_its_own_node(rabbitmq_server: RabbitMQServer) -> None:
    if not rabbitmq_server.processes:
        pytest.skip("the broker is not ours")
    assert str(rabbitmq_server.port) in rabbitmq_server.control("status")


def test_pgbouncer_pools_transactions(pgbouncer: PgBouncer) -> None:
    def in_transaction(connection: psycopg.Connection) -> int:
        with connection.transaction():
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            return int(row[0])

    dsn = pgbouncer.address
    with (
        psycopg.connect(dsn, prepare_threshold=None) as one,
        psycopg.connect(dsn, prepare_threshold=None) as other,
    ):
        assert in_transaction(one) == in_transaction(other)
