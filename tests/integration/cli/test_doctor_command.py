"""``outbox doctor``: what it shows, and its exit code by severity."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.integration.cli.command import invoke, outbox, terminal
from tests.integration.cli.sql import TABLE, execute
from tests.services.nats import NatsServer
from tests.services.postgres import Database

pytestmark = pytest.mark.store


@pytest.fixture
def shop(database: Database) -> str:
    assert invoke("schema", "create", "-t", TABLE, database=database.dsn).code == 0
    execute(
        database.dsn,
        "UPDATE shop.outbox_leader SET holder = 'here:1', heartbeat_at = now() + interval '1 hour'",
    )
    return database.dsn


def test_all_is_well(shop: str, nats_server: NatsServer) -> None:
    result = outbox("doctor", "-t", TABLE, "--to", nats_server.address, database=shop)
    assert result.code == 0, result.out
    assert result.lines[0] == ["severity", "check", "table", "finding", "why", "run"]
    assert {line[0] for line in result.lines[1:]} == {"ok"}
    quiet = outbox("doctor", "-t", TABLE, "--to", nats_server.address, "--quiet", database=shop)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "all is well\n")


def test_a_warning(shop: str) -> None:
    with psycopg.connect(shop, application_name="reporting") as connection:
        connection.execute("SELECT pg_current_xact_id()")
        result = invoke("doctor", "-t", TABLE, "--long", "0", "--json", database=shop)
    assert result.code == 10
    document = json.loads(result.out)
    assert document["severity"] == "warning"
    (finding,) = [each for each in document["findings"] if each["severity"] == "warning"]
    assert set(finding) == {"check", "severity", "title", "why", "run", "table"}
    assert (finding["check"], finding["table"], "reporting" in finding["title"]) == ("horizon", None, True)
    assert finding["run"][0].startswith("SELECT pg_terminate_backend(")


def test_an_error_on_a_terminal(shop: str) -> None:
    execute(shop, "DROP INDEX shop.orders_outbox_pending")
    with terminal("doctor", "-t", TABLE, database=shop) as screen:
        assert screen.end() == 11
    lines = screen.screen.splitlines()
    assert lines[0].startswith("error   indexes: shop.orders_outbox: index orders_outbox_pending")
    assert any("CREATE INDEX CONCURRENTLY" in line for line in lines)
    assert "\x1b[1;31m" in screen.raw
    with terminal("doctor", "-t", TABLE, database=shop, env={"NO_COLOR": "1"}) as plain:
        assert plain.end() == 11
    assert "\x1b[1;31m" not in plain.raw


def test_everything_that_is_wrong_at_once_and_no_password() -> None:
    result = outbox(
        "doctor",
        "-t",
        TABLE,
        "--to",
        "pigeon://ada:canary@loft",
        database="postgresql://ada:canary@127.0.0.1:1/x",
        env={"OUTBOX_RELAY_BATCH_SIZE": "many"},
    )
    assert result.code == 11
    assert [line[1] for line in result.lines if line[0] == "error"] == ["settings", "connection", "broker"]
    assert "canary" not in result.out + result.err


def test_one_wrong_setting_leaves_the_others_as_they_are(shop: str) -> None:
    result = outbox(
        "doctor", database=shop, env={"OUTBOX_RELAY_TABLES": TABLE, "OUTBOX_RELAY_LOCK_TTL": "soon"}
    )
    assert result.code == 11
    errors = [line for line in result.lines if line[0] == "error"]
    assert [(line[1], line[3].partition(":")[0]) for line in errors] == [
        ("settings", "OUTBOX_RELAY_LOCK_TTL=soon")
    ]
    assert "no table is named" not in result.out
    assert [line[2] for line in result.lines if line[1] == "schema"] == [TABLE]


def test_where_the_database_was_looked_for() -> None:
    result = outbox("doctor", "-t", TABLE, database="postgresql://ada:canary@127.0.0.1:1/shop")
    (line,) = [line for line in result.lines if line[1] == "connection"]
    assert line[3] == (
        "cannot connect to the database at 127.0.0.1:1/shop: nothing listens there [ConnectionRefusedError]"
    )
    assert line[5] == "check host and port, and that PostgreSQL is running and listens on that address"
    assert "canary" not in result.out + result.err


def test_bad_options() -> None:
    assert invoke("doctor", "--timeout", "0").code == 2
    assert invoke("doctor", "--long", "soon").code == 2
    assert invoke("doctor", "-t", "no such table").code == 2
    assert invoke("doctor", "-d", "mysql://x").code == 2
