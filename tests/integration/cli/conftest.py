"""A database with an outbox table."""

from __future__ import annotations

import pytest

from tests.integration.cli.command import invoke
from tests.integration.cli.sql import OTHER, TABLE
from tests.services.postgres import Database


@pytest.fixture
def shop(database: Database) -> str:
    """An outbox table in a database of the test's own."""
    assert invoke("schema", "create", "-t", TABLE, database=database.dsn).code == 0
    return database.dsn


@pytest.fixture
def two_tables(database: Database) -> str:
    """Two outbox tables in a database of the test's own."""
    for table in (TABLE, OTHER):
        assert invoke("schema", "create", "-t", table, database=database.dsn).code == 0
    return database.dsn
