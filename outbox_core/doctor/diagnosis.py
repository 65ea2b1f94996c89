"""`diagnose`: every check, one after the other, none of them able to hide another."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import asyncpg

from outbox_core.config import Settings
from outbox_core.dispatcher import Dispatcher, load_dispatcher
from outbox_core.doctor import horizon, leader, schema, server, vacuum
from outbox_core.doctor.broker import check_broker, topics_in_use
from outbox_core.doctor.case import Case, TableCase
from outbox_core.doctor.settings import Reading, check_settings, read_settings
from outbox_core.errors import OutboxError
from outbox_core.finding import Finding, Limits, Severity
from outbox_core.stores.postgres.connecting import address, flaw, obstacle
from outbox_core.stores.postgres.sessions import BROKEN, close, summary
from outbox_core.stores.postgres.sql import render
from outbox_core.table import TableName

if TYPE_CHECKING:
    from asyncpg import Connection

_SET_DATABASE: Final = "export OUTBOX_DATABASE_URL=postgresql://user:password@host:5432/name"


async def diagnose(
    settings: Settings | Mapping[str, str] | None = None,
    *,
    database_url: str | None = None,
    tables: Sequence[str | TableName] = (),
    dispatcher: Dispatcher | str | None = None,
    limits: Limits | None = None,
    connect: Mapping[str, Any] | None = None,
    timeout: float = 10.0,
) -> list[Finding]:
    """Look at settings, connection, server, tables and broker; the findings in that order, good ones included.

    ``settings`` are `Settings`, or the environment they are read from (that of this process by default), wrong values
    being findings. ``database_url``, ``tables`` and ``dispatcher`` (or its URL) win over them. ``connect`` is passed to
    ``asyncpg.connect``. Each check may take ``timeout`` seconds; one that fails is a finding of its own.
    """
    given = os.environ if settings is None else settings
    reading = Reading(given) if isinstance(given, Settings) else read_settings(given)
    read, findings = reading.settings, list(reading.findings)
    names = [TableName.parse(table) for table in tables] or list(read.relay_tables)
    destination = read.relay_to if dispatcher is None else dispatcher
    findings += check_settings(reading, names, has_destination=destination is not None)
    if not any(finding.check == "settings" for finding in findings):
        findings.append(Finding("settings", Severity.OK, "complete and readable"))
    url = database_url or read.database_url
    topics: list[str] = []
    if url is None and "OUTBOX_DATABASE_URL" in reading.unread:
        why = "Without it nothing in the database can be looked at."
        title = "not tried: OUTBOX_DATABASE_URL cannot be read, see the finding about it"
        findings.append(Finding("connection", Severity.ERROR, title, why, (_SET_DATABASE,)))
    elif url is None:
        why = "Without it nothing in the database can be looked at."
        title = "no database is named (OUTBOX_DATABASE_URL)"
        findings.append(Finding("connection", Severity.ERROR, title, why, (_SET_DATABASE,)))
    else:
        try:
            async with _session(url, connect or {}, timeout) as connection:
                found, topics = await _database(Case(connection, read, limits or Limits()), names, timeout)
                findings += found
        except _Unreachable as error:
            findings.append(error.finding)
    if destination is not None:
        findings += await _destination(destination, topics, timeout)
    return findings


async def _database(
    case: Case, tables: Sequence[TableName], timeout: float
) -> tuple[list[Finding], list[str]]:
    findings: list[Finding] = []
    found: list[server.Server] = []

    async def look() -> list[Finding]:
        seen = await server.look_at_server(case.connection)
        found.append(seen)
        return [
            *server.check_connection(seen, case.limits),
            *server.check_version(seen),
            *server.check_pooler(seen),
            *server.check_clock(seen, case.limits),
            *server.check_monitoring(seen),
        ]

    findings += await _attempt("connection", look, timeout)
    findings += await _attempt("horizon", partial(horizon.check_horizon, case), timeout)
    topics: dict[str, None] = {}
    for table in tables:
        about = TableCase(case.connection, case.settings, case.limits, table)
        findings += await _table(about, found[0] if found else None, topics, timeout)
    return findings, list(topics)


async def _table(
    case: TableCase, seen: server.Server | None, topics: dict[str, None], timeout: float
) -> list[Finding]:
    usable = False

    async def look() -> list[Finding]:
        nonlocal usable
        usable, own = await schema.check_schema(case)
        return own

    findings = await _attempt("schema", look, timeout, case.table)
    if not usable:
        return findings
    checks: list[tuple[str, Callable[[], Awaitable[list[Finding]]]]] = [
        ("privileges", partial(schema.check_privileges, case)),
        ("autovacuum", partial(vacuum.check_autovacuum, case, seen)),
        ("bloat", partial(vacuum.check_bloat, case)),
        ("leader", partial(leader.check_leader, case)),
        ("destination", partial(_topics, case, topics)),
    ]
    for name, check in checks:
        findings += await _attempt(name, check, timeout, case.table)
    return findings


async def _topics(case: TableCase, topics: dict[str, None]) -> list[Finding]:
    topics.update(dict.fromkeys(await topics_in_use(case, render("doctor/topics.sql", case.table))))
    return []


async def _attempt(
    name: str,
    check: Callable[[], Awaitable[list[Finding]]],
    timeout: float,
    table: TableName | None = None,
) -> list[Finding]:
    """A check's findings, or one that says why it could not be done."""
    try:
        with anyio.fail_after(timeout):
            return await check()
    except asyncpg.InsufficientPrivilegeError:
        reason = "this role may not read what it needs"
    except BROKEN as error:
        reason = f"no answer within {timeout:g} s" if isinstance(error, TimeoutError) else summary(error)
    except OutboxError as error:
        reason = str(error)
    except Exception as error:  # what nobody foresaw must not hide what the other checks find
        reason = f"unexpected {type(error).__name__}"
    why = "What it would have found is not known."
    run = (f"outbox schema verify --table {table}",) if table is not None else ()
    return [Finding(name, Severity.WARNING, f"could not be looked at: {reason}", why, run, table)]


async def _destination(destination: Dispatcher | str, topics: Sequence[str], timeout: float) -> list[Finding]:
    try:
        made = load_dispatcher(destination) if isinstance(destination, str) else destination
    except Exception as error:  # an adapter of somebody else's may raise anything
        title = str(error) if isinstance(error, OutboxError) else f"unexpected {type(error).__name__}"
        why = "A relay that is given this destination does not start."
        return [Finding("broker", Severity.ERROR, title, why, ("export OUTBOX_RELAY_TO=…",))]
    return await _attempt("broker", partial(check_broker, made, topics, timeout), 2 * timeout)


class _Unreachable(Exception):
    def __init__(self, title: str, remedy: str) -> None:
        super().__init__(title)
        why = "Nothing can be enqueued or delivered."
        self.finding = Finding("connection", Severity.ERROR, title, why, (remedy,))


@asynccontextmanager
async def _session(url: str, connect: Mapping[str, Any], timeout: float) -> AsyncGenerator[Connection]:
    wrong = flaw(url)
    if wrong is not None:
        raise _Unreachable(f"the database URL cannot be used: {wrong}", _SET_DATABASE)
    arguments = dict(connect)
    named = {"application_name": "outbox:doctor", **arguments.pop("server_settings", {})}
    try:
        connection = await asyncpg.connect(
            url,
            timeout=timeout,
            command_timeout=timeout,
            server_settings=named,
            # A pooler may give every statement another session, which knows of no prepared ones.
            statement_cache_size=0,
            **arguments,
        )
    except (*BROKEN, ValueError, OverflowError) as error:
        found = obstacle(error)
        what = f"{found.what} [{found.name}]" if found.what else found.name
        remedy = found.remedy or "see that it is running and can be reached from this host"
        raise _Unreachable(
            f"cannot connect to the database at {address(url, connect)}: {what}", remedy
        ) from None
    try:
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await close(connection)
