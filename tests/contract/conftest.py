"""One database for the whole suite: a table that is emptied before each test, and what may stand in its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import asyncpg
import psycopg
import pytest

from outbox_core import schema
from tests.contract.sessions import TABLE
from tests.services.own_loop import run_async
from tests.services.postgres import PostgresServer

pytest.register_assert_rewrite(
    "tests.contract.writing",
    "tests.contract.idempotence",
    "tests.contract.concurrency",
    "tests.contract.reading",
)

# A schema that answers to the same names: whoever relies on the search_path ends up here.
_SHADOW = f"""
CREATE SCHEMA shadow;
CREATE SEQUENCE shadow.{TABLE.name}_sequence_seq;
CREATE TABLE shadow.{TABLE.name} (nothing integer);
CREATE FUNCTION shadow.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '-infinity'::timestamptz $$;
CREATE FUNCTION shadow.nextval(text) RETURNS bigint LANGUAGE sql AS $$ SELECT 1::bigint $$;
CREATE FUNCTION shadow.pg_notify(text, text) RETURNS text LANGUAGE sql AS $$ SELECT (1 / 0)::text $$;
"""


@dataclass(frozen=True)
class ContractDatabase:
    """Its address, and a role that has the producer's grants and nothing else."""

    dsn: str
    producer: str


@pytest.fixture(scope="session")
def contract_database(postgres_server: PostgresServer) -> Iterator[ContractDatabase]:
    name = f"outbox_contract_{postgres_server.port or 'foreign'}"
    producer = f"{name}_producer"
    with postgres_server.fresh_database(name) as database:

        async def prepare() -> None:
            connection = await asyncpg.connect(database.dsn)
            try:
                await schema.create(connection, TABLE)
                await connection.execute(_SHADOW)
                await connection.execute(f"CREATE ROLE {producer}")
                await connection.execute(schema.roles(TABLE, producer=producer))
            finally:
                await connection.close()

        run_async(prepare, timeout_s=30)
        try:
            yield ContractDatabase(database.dsn, producer)
        finally:
            with psycopg.connect(database.dsn, autocommit=True) as connection:
                connection.execute(f"DROP OWNED BY {producer}".encode())
                connection.execute(f"DROP ROLE {producer}".encode())
