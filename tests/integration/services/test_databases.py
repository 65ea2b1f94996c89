"""Each test has a database and names of its own, and leaves nothing behind."""

from __future__ import annotations

import re

import psycopg
import pytest

from tests.services.postgres import Database, PostgresServer


@pytest.mark.parametrize("attempt", [1, 2])
def test_every_test_gets_an_empty_database(database: Database, attempt: int) -> None:
    with psycopg.connect(database.dsn) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == (database.name,)
        connection.execute("CREATE TABLE once (id int)")


def test_a_database_is_dropped_though_somebody_is_connected(
    postgres_server: PostgresServer, unique_name: str
) -> None:
    with postgres_server.fresh_database(unique_name) as database:
        connection = psycopg.connect(database.dsn)
    with connection, pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(database.dsn)


def test_the_dsn_names_host_port_and_database(database: Database) -> None:
    assert re.fullmatch(r"postgresql://\S+@\S+/outbox_test_t[0-9a-f]{10}", database.dsn)


def test_tests_with_servers_are_marked(request: pytest.FixtureRequest, database: Database) -> None:
    assert request.node.get_closest_marker("postgres") is not None


def test_names_are_unique_and_fit_everywhere(unique_name: str, database: Database) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]{1,20}", unique_name)
    assert database.name.endswith(unique_name)
