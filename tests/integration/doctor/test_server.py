"""The server and the way to it: each condition made, found, mended, and gone."""

from __future__ import annotations

import asyncio
import re
import socket
from datetime import datetime, timedelta, tzinfo

import asyncpg
import pytest

from outbox_core.doctor import Limits, Severity, worst
from outbox_core.stores.postgres.connecting import address
from outbox_core.stores.postgres.doctor.server import Server, check_clock, check_connection, check_version
from tests.integration.doctor.ward import TABLE, Ward
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Database

pytestmark = [pytest.mark.store, pytest.mark.asyncio]


async def test_a_healthy_table_has_nothing_worse_than_nobody_to_lead_it(ward: Ward) -> None:
    findings = await ward.diagnose()
    assert {finding.check for finding in findings if finding.severity is Severity.OK} == {
        "connection", "version", "pooler", "clock", "horizon", "schema", "indexes", "privileges", "autovacuum", "bloat",
    }  # fmt: skip
    assert [(each.check, each.severity) for each in findings if each.severity is not Severity.OK] == [
        ("settings", Severity.NOTE),
        ("leader", Severity.WARNING),
    ]
    assert worst(findings) is Severity.WARNING


async def test_no_database_is_named(ward: Ward) -> None:
    finding = await ward.only("connection", database_url=None)
    assert (finding.severity, "OUTBOX_DATABASE_URL" in finding.title) == (Severity.ERROR, True)


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        ({"database": "nowhere"}, "no database of that name", "create the database"),
        ({"port": 1}, "nothing listens there", "check host and port, and that PostgreSQL is running"),
        ({"host": "nowhere.invalid"}, "the host name is not known", "check the host in the database URL"),
        (
            {"user": "nobody_made_this"},
            "the user may not log in there|the password was refused",
            "check the user",
        ),
    ],
)
async def test_a_database_that_cannot_be_reached(
    ward: Ward, change: dict[str, object], what: str, remedy: str
) -> None:
    finding = await ward.only("connection", connect=change)
    assert finding.severity is Severity.ERROR
    assert f"cannot connect to the database at {address(ward.dsn, change)}: " in finding.title
    assert re.search(what, finding.title)
    assert remedy in finding.run[0]


async def test_a_url_that_cannot_be_read_shows_no_password(ward: Ward) -> None:
    finding = await ward.only("connection", database_url="postgresql://u:canary@h:nonsense/x")
    assert "the port after its host must be a number from 1 to 65535" in finding.title
    assert "canary" not in str(finding)


async def test_a_server_that_does_not_answer_is_not_waited_for_long(ward: Ward) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/x?sslmode=disable"
        finding = await asyncio.wait_for(ward.only("connection", database_url=url, timeout=0.5), 10)
    assert "TimeoutError" in finding.title


async def test_a_session_that_may_only_read(ward: Ward) -> None:
    settings = {"server_settings": {"default_transaction_read_only": "on"}}
    finding = await ward.only("connection", connect=settings)
    assert (finding.severity, "read-only" in finding.title) == (Severity.ERROR, True)
    assert await ward.findings("connection") == []


async def test_connections_that_run_out(ward: Ward) -> None:
    finding = await ward.only("connection", limits=Limits(connections=0.0))
    assert "connections are in use" in finding.title
    assert await ward.findings("connection") == []


async def test_a_transaction_pooler(ward: Ward, database: Database, pgbouncer: PgBouncer) -> None:
    finding = await ward.only("pooler", database_url=pgbouncer.dsn(database.name))
    assert finding.severity is Severity.WARNING
    assert await ward.findings("pooler") == []


async def test_a_role_that_cannot_see_the_sessions_of_others(ward: Ward, unique_name: str) -> None:
    await ward.connection.execute(f"CREATE ROLE {unique_name}")
    try:
        settings = {"server_settings": {"role": unique_name}}
        finding = await ward.only("horizon", connect=settings)
        assert finding.severity is Severity.NOTE
        await ward.connection.execute(finding.run[0])
        assert await ward.findings("horizon", connect=settings) == []
    finally:
        await ward.connection.execute(f"DROP OWNED BY {unique_name}; DROP ROLE {unique_name}")


def seen(**facts: object) -> Server:
    usual: dict[str, object] = {
        "version": 160004, "version_text": "16.4", "standby": False, "read_only": False, "encrypted": True,
        "local": False, "server_address": "10.0.0.7", "connections": 1, "max_connections": 100, "role": "ada",
    }  # fmt: skip
    return Server(usual | facts, offset=0.0, doubt=0.001, pooled=False)


async def test_what_this_server_is_not() -> None:
    """Conditions that the servers of the tests cannot be brought into."""
    old, new = check_version(seen(version=130011, version_text="13.11")), check_version(seen(version=190000))
    assert (old[0].severity, new[0].severity) == (Severity.ERROR, Severity.NOTE)
    standby = check_connection(seen(standby=True), Limits())
    assert (standby[0].severity, "standby" in standby[0].title) == (Severity.ERROR, True)
    (plain,) = check_connection(seen(encrypted=False), Limits())
    assert (plain.severity, "10.0.0.7" in plain.title) == (Severity.WARNING, True)
    assert check_connection(seen(encrypted=False, local=True), Limits())[0].severity is Severity.OK


async def test_clocks_that_disagree(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now

    class Ahead:
        @staticmethod
        def now(zone: tzinfo) -> datetime:
            return now(zone) + timedelta(seconds=90)

    with monkeypatch.context() as patched:
        patched.setattr("outbox_core.stores.postgres.doctor.server.datetime", Ahead)
        finding = await ward.only("clock")
    assert "ahead of the database's" in finding.title
    assert await ward.findings("clock") == []
    slow = Server({}, offset=-3.0, doubt=5.0, pooled=False)
    assert check_clock(slow, Limits())[0].severity is Severity.OK


async def test_a_check_that_fails_hides_no_other(ward: Ward, unique_name: str) -> None:
    """The role may not use the schema: what concerns the table fails, the rest is found."""
    await ward.connection.execute(f"CREATE ROLE {unique_name}")
    try:
        findings = await ward.diagnose(connect={"server_settings": {"role": unique_name}})
    finally:
        await ward.connection.execute(f"DROP ROLE {unique_name}")
    failed = {finding.check for finding in findings if "could not be looked at" in finding.title}
    assert failed
    assert {"connection", "version", "pooler", "clock", "horizon"} <= {finding.check for finding in findings}


async def test_a_statement_that_hangs_is_given_up(ward: Ward) -> None:
    locker = await asyncpg.connect(ward.dsn)
    try:
        async with locker.transaction():
            await locker.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
            findings = await asyncio.wait_for(ward.diagnose(timeout=1.0), 30)
    finally:
        await locker.close()
    assert any("could not be looked at" in finding.title for finding in findings)
    assert {finding.check for finding in findings} >= {"connection", "version", "pooler"}
