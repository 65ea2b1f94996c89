"""Every folder of `examples` runs for real: as a script twice, as a web application by itself and as a server."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql

from outbox_core import schema
from tests.examples.running import (
    EXAMPLES,
    PYTHON,
    ROOT,
    background,
    free_port,
    names,
    run,
    succeed,
)
from tests.services.kafka import KafkaServer
from tests.services.nats import NatsServer
from tests.services.postgres import Database
from tests.services.rabbitmq import RabbitMQServer

pytestmark = pytest.mark.timeout(240)

ON_POSTGRES = ["alembic_migration", "event_bus", "own_adapter"]
ON_NATS = ["delayed_message", "idempotent_consumer", "multi_tenant", "relay_process"]
ON_KAFKA = ["ordering_by_key"]


@dataclass(frozen=True)
class Web:
    """What a request to the application looks like, and where its event waits."""

    name: str
    path: str
    body: dict[str, object]
    table: str


WITH_KAFKA = Web("fastapi_kafka", "/orders", {"product": "tea", "quantity": 1}, "store_outbox")
WITH_NATS = Web("aiohttp_nats", "/customers", {"email": "ada@example.org"}, "crm_outbox")
WITH_RABBITMQ = Web("litestar_rabbitmq", "/payments", {"invoice": str(uuid4()), "cents": 5}, "billing_outbox")
WEB = [WITH_KAFKA, WITH_NATS, WITH_RABBITMQ]


def test_every_folder_has_a_test() -> None:
    assert names() == {*ON_POSTGRES, *ON_NATS, *ON_KAFKA, *(web.name for web in WEB)}


@pytest.mark.parametrize("name", sorted(names()))
def test_every_folder_says_how_to_run_it(name: str) -> None:
    readme = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    assert f"python -m examples.{name}" in readme
    assert f"[{name}]({name}/README.md)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_on_postgres(name: str, database: Database) -> None:
    runs_twice(name, {"OUTBOX_DATABASE_URL": database.dsn})


@pytest.mark.parametrize("name", ON_NATS)
def test_on_nats(name: str, database: Database, nats_server: NatsServer) -> None:
    runs_twice(name, {"OUTBOX_DATABASE_URL": database.dsn, "NATS_URL": nats_server.address})


@pytest.mark.parametrize("name", ON_KAFKA)
def test_on_kafka(name: str, database: Database, kafka_server: KafkaServer) -> None:
    runs_twice(name, {"OUTBOX_DATABASE_URL": database.dsn, "KAFKA_URL": f"kafka://{kafka_server.address}"})


def test_fastapi_with_kafka(database: Database, kafka_server: KafkaServer, tmp_path: Path) -> None:
    addresses = {"OUTBOX_DATABASE_URL": database.dsn, "KAFKA_URL": f"kafka://{kafka_server.address}"}
    checks_itself_and_serves(WITH_KAFKA, addresses, tmp_path)


def test_aiohttp_with_nats(database: Database, nats_server: NatsServer, tmp_path: Path) -> None:
    addresses = {"OUTBOX_DATABASE_URL": database.dsn, "NATS_URL": nats_server.address}
    checks_itself_and_serves(WITH_NATS, addresses, tmp_path)


def test_litestar_with_rabbitmq(database: Database, rabbitmq_server: RabbitMQServer, tmp_path: Path) -> None:
    addresses = {"OUTBOX_DATABASE_URL": database.dsn, "AMQP_URL": rabbitmq_server.address}
    checks_itself_and_serves(WITH_RABBITMQ, addresses, tmp_path)


def runs_twice(name: str, addresses: Mapping[str, str]) -> None:
    """On empty servers, and on those that a run has left behind."""
    succeed("-m", f"examples.{name}", addresses=addresses)
    succeed("-m", f"examples.{name}", addresses=addresses)


def checks_itself_and_serves(web: Web, addresses: Mapping[str, str], folder: Path) -> None:
    succeed("-m", f"examples.{web.name}", "--check", addresses=addresses)
    port = free_port()
    command = [*PYTHON, "-m", f"examples.{web.name}"]
    with (
        background(command, {**addresses, "PORT": str(port)}, folder / "log") as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client,
    ):
        server.until(lambda: answers(client, "/health/ready"))
        already = published(addresses, web.table)
        assert client.post(web.path, json=web.body).status_code == 201
        server.until(lambda: published(addresses, web.table) == already + 1)
        # uvicorn ends in order and then dies of the signal, as its caller expects.
        assert server.stop(within=20) in (0, -signal.SIGTERM), server.log()
        assert "Traceback" not in server.log(), server.log()


def answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


def published(addresses: Mapping[str, str], table: str) -> int:
    """How many messages the broker has acknowledged."""
    with psycopg.connect(addresses["OUTBOX_DATABASE_URL"]) as connection:
        query = sql.SQL("SELECT count(*) FROM {} WHERE published_at IS NOT NULL").format(
            sql.Identifier(table)
        )
        (count,) = connection.execute(query).fetchone() or (0,)
    return int(count)


def test_an_address_that_is_missing_is_named() -> None:
    done = run("-m", "examples.event_bus", addresses={})
    assert done.returncode == 1
    assert done.stderr.startswith(
        "OUTBOX_DATABASE_URL is not set: it must be an address such as postgresql://"
    )


def test_an_example_that_cannot_see_its_event_fails(database: Database) -> None:
    """Success means that the event was seen, so there is none without a broker."""
    addresses = {"OUTBOX_DATABASE_URL": database.dsn, "NATS_URL": f"nats://127.0.0.1:{free_port()}"}
    assert run("-m", "examples.idempotent_consumer", addresses=addresses).returncode == 1


def test_the_migration_is_what_the_library_prints() -> None:
    folder = EXAMPLES / "alembic_migration" / "versions"
    table = "tickets_outbox"
    down = [
        schema.script(table, from_version=version, to_version=version - 1, transaction=False)
        for version in (3, 1)
    ]
    up = schema.script(table, transaction=False)
    assert (folder / "0001_outbox_up.sql").read_text().strip() == up.strip()
    assert (folder / "0001_outbox_down.sql").read_text().split() == "\n".join(down).split()


def test_the_migration_can_be_undone(database: Database) -> None:
    addresses = {"OUTBOX_DATABASE_URL": database.dsn}
    alembic = ("-m", "alembic", "-c", str(ROOT / "examples/alembic_migration/alembic.ini"))
    for command in (["upgrade", "head"], ["downgrade", "base"]):
        done = run(*alembic, *command, addresses=addresses)
        assert done.returncode == 0, done.stderr
        with psycopg.connect(database.dsn) as connection:
            rows = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            ).fetchall()
        tables = {name for (name,) in rows}
        assert ("tickets_outbox" in tables) == ("tickets" in tables) == (command[0] == "upgrade")
    assert tables == {"alembic_version"}
