"""A relay that cannot start says, in one error, where it looked, what was wrong and what to do; never the password."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from outbox_core.errors import OutboxError, StorageTimeout, StorageUnavailable
from outbox_core.relay import Relay
from tests.conftest import skipped_or_failed_when_missing
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.gates import ignore
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until
from tests.services.postgres import PostgresServer
from tests.services.proxy import FaultProxy
from tests.services.session import Services

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]
SECRET = "CANARY"


@pytest.fixture(scope="module")
def server(services: Services) -> Iterator[PostgresServer]:
    """A PostgreSQL of these tests' own, which asks the role `guarded` for its password."""
    with skipped_or_failed_when_missing(), services.private(PostgresServer) as started:
        rules = started.data_folder / "pg_hba.conf"
        refused = "host all refused 127.0.0.1/32 reject\n"
        rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{refused}{rules.read_text()}")
        started.restart()
        yield started


def at(server: PostgresServer, **parts: Any) -> str:
    """The server's address with some of its parts replaced, and a password."""
    url = urlsplit(server.address)
    user, host, port = (
        parts.get("user", "postgres"),
        parts.get("host", "127.0.0.1"),
        parts.get("port", url.port),
    )
    return f"postgresql://{user}:{SECRET}@{host}:{port}/{parts.get('database', 'postgres')}"


async def refusal(dsn: str, **settings: Any) -> str:
    """The one error of a relay that cannot start; the same whichever way it is started."""
    texts: set[str] = set()
    for start in (Relay.start, lambda relay: relay.run(signals=False), Relay.run_once, Relay.drain):
        relay = Relay(dsn, table=TABLE, dispatcher=ignore, **(QUICK_POSTGRES | settings))
        with pytest.raises(OutboxError) as raised:
            await start(relay)
        assert relay.state == "stopped"
        assert type(raised.value) is StorageUnavailable
        texts.add(str(raised.value))
    (text,) = texts
    assert SECRET not in text
    return text


async def test_a_host_that_is_not_known(server: PostgresServer) -> None:
    text = await refusal(at(server, host="no-such-host.invalid"))
    assert text == (
        f"cannot connect to the database at no-such-host.invalid:{server.port}/postgres:"
        " the host name is not known; check the host in the database URL, and this machine's DNS [gaierror]"
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_port_where_nothing_listens(server: PostgresServer, unused_tcp_port: int, host: str) -> None:
    text = await refusal(at(server, host=host, port=unused_tcp_port))
    assert text.startswith(
        f"cannot connect to the database at {host}:{unused_tcp_port}/postgres: nothing listens there;"
        " check host and port, and that PostgreSQL is running and listens on that address ["
    )


async def test_a_database_that_is_not_there(server: PostgresServer) -> None:
    assert await refusal(at(server, database="no_such")) == (
        f"cannot connect to the database at 127.0.0.1:{server.port}/no_such: there is no database of that name"
        " there; check the name, or create the database [InvalidCatalogNameError (3D000)]"
    )


async def test_a_wrong_password_and_a_user_who_may_not_come(server: PostgresServer) -> None:
    async with connected(server) as admin:
        await admin.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'; CREATE ROLE refused LOGIN")
    where = f"cannot connect to the database at 127.0.0.1:{server.port}/postgres: "
    assert await refusal(at(server, user="guarded")) == (
        f"{where}the password was refused; check the user and the password [InvalidPasswordError (28P01)]"
    )
    assert await refusal(at(server, user="refused")) == (
        f"{where}the user may not log in there; check the user, and the server's pg_hba.conf"
        " [InvalidAuthorizationSpecificationError (28000)]"
    )


@pytest.mark.parametrize("limit", [0, 1])
async def test_no_connection_is_free(server: PostgresServer, limit: int) -> None:
    """Neither the first nor a later one."""
    role = f"limited{limit}"
    async with connected(server) as admin:
        await admin.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT {limit}")
        taken = [await asyncpg.connect(at(server, user=role)) for _ in range(limit)]
        text = await refusal(at(server, user=role))
        assert text == (
            f"cannot connect to the database at 127.0.0.1:{server.port}/postgres: all connections are taken;"
            " end some, or raise max_connections or the role's or database's own limit (a relay needs up to"
            " five) [TooManyConnectionsError (53300)]"
        )
        for connection in taken:
            await connection.close()


async def test_a_server_that_is_not_ready(server: PostgresServer) -> None:
    """It lets its clients finish and takes no new ones, as before a restart; starting up it answers the same."""
    postmaster = int((server.data_folder / "postmaster.pid").read_text().split()[0])
    async with connected(server):
        os.kill(postmaster, signal.SIGTERM)

        async def refuses() -> bool:
            try:
                connection = await asyncpg.connect(server.address)
            except asyncpg.CannotConnectNowError:
                return True
            await connection.close()
            return False

        await until(refuses)
        assert await refusal(at(server)) == (
            f"cannot connect to the database at 127.0.0.1:{server.port}/postgres: the server is starting up or"
            " shutting down; try again in a moment [CannotConnectNowError (57P03)]"
        )
    await asyncio.to_thread(server.restart)


async def test_a_server_that_does_not_answer(server: PostgresServer) -> None:
    async with FaultProxy.to_postgres(server.address) as proxy:
        proxy.hold()
        text = await refusal(at(server, port=proxy.port), database_timeout=0.3)
        await proxy.wait_for(lambda seen: seen.requests.held > 0)
        port = proxy.port
    assert text == (
        f"cannot connect to the database at 127.0.0.1:{port}/postgres: no answer; check host and"
        " port, and the firewalls on the way [TimeoutError]"
    )


async def test_something_else_than_postgresql_listens() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        text = await refusal(f"postgresql://u:{SECRET}@127.0.0.1:{port}/shop")
    assert text.startswith(f"cannot connect to the database at 127.0.0.1:{port}/shop: ")


def where(bench: Bench) -> str:
    url = urlsplit(bench.dsn)
    return f"the database at {url.hostname}:{url.port}{url.path}"


@pytest.mark.parametrize("locked", ["outbox_schema_version", "outbox_leader"])
async def test_a_migration_that_keeps_the_schema_locked(bench: Bench, locked: str) -> None:
    async with bench.connection.transaction():
        await bench.connection.execute(f"LOCK TABLE shop.{locked} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StorageTimeout) as raised:
            await bench.relay(ignore, database_timeout=0.5).start()
    assert str(raised.value).startswith(
        f"{where(bench)} did not tell the schema of {TABLE} in time: a migration, or somebody else, may hold a lock"
        " on outbox_schema_version or outbox_leader; try again when that is over ["
    )
    await bench.nothing_is_left()


async def test_a_session_that_is_ended_while_the_relay_starts(bench: Bench) -> None:
    waiting = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    migration = await asyncpg.connect(bench.dsn)
    try:
        await migration.execute("BEGIN; LOCK TABLE shop.outbox_schema_version IN ACCESS EXCLUSIVE MODE")
        starting = asyncio.create_task(bench.relay(ignore).start())

        async def ended() -> bool:
            return bool(await bench.connection.fetch(f"SELECT pg_terminate_backend(pid) {waiting}"))

        await until(ended)
        with pytest.raises(StorageUnavailable) as raised:
            await starting
    finally:
        await migration.close()
    assert str(raised.value).startswith(
        f"the connection to {where(bench)} was lost while the schema of {TABLE} was read; try again when the server"
        " is back, and look into its log if it is not away ["
    )
    await bench.nothing_is_left()


async def test_a_server_that_is_read_only(bench: Bench) -> None:
    name = await bench.connection.fetchval("SELECT current_database()")
    await bench.connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    text = await refusal(bench.dsn)
    assert text == (
        f"{where(bench)} is read-only and cannot claim: it is a stand-by, or default_transaction_read_only is on; name"
        " the primary in the database URL, or all its servers with target_session_attrs=read-write"
        " [ReadOnlySQLTransactionError (25006)]"
    )


@asynccontextmanager
async def connected(server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.address)
    try:
        yield connection
    finally:
        await connection.close()
