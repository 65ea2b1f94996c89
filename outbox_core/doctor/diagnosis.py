"""`diagnose`: every check, one after the other, none of them able to hide another."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import anyio

from outbox_core import stores
from outbox_core.config import Settings
from outbox_core.dispatcher import Dispatcher, load_dispatcher
from outbox_core.doctor.broker import check_broker
from outbox_core.doctor.settings import Reading, check_settings, read_settings
from outbox_core.errors import OutboxError
from outbox_core.finding import Finding, Limits, Severity
from outbox_core.store_checks import CheckOptions, StoreChecks, Unreachable, Unusable
from outbox_core.table import TableName

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
    the store's driver. Each check may take ``timeout`` seconds; one that fails is a finding of its own.
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
        options = CheckOptions(
            timeout=timeout,
            takeover=read.relay.takeover,
            elections=read.relay.single_active,
            limits=limits or Limits(),
        )
        try:
            wrong = stores.flaw(url)
            if wrong is not None:
                raise Unreachable(f"the database URL cannot be used: {wrong}", _SET_DATABASE)
            async with stores.for_url(url).checks(options, connect) as checks:
                found, topics = await _database(checks, names, timeout)
                findings += found
        except Unreachable as error:
            why = "Nothing can be enqueued or delivered."
            findings.append(Finding("connection", Severity.ERROR, error.what, why, (error.remedy,)))
    if destination is not None:
        findings += await _destination(destination, topics, timeout)
    return findings


async def _database(
    checks: StoreChecks, tables: Sequence[TableName], timeout: float
) -> tuple[list[Finding], list[str]]:
    """Run the store's checks in their order; also returns the topics in use."""
    findings: list[Finding] = []
    for check in checks.server:
        findings += (await _attempt(check.name, check.run, timeout)).findings
    topics: dict[str, None] = {}
    for table in tables:
        findings += await _table(checks, table, topics, timeout)
    return findings, list(topics)


async def _table(
    checks: StoreChecks, table: TableName, topics: dict[str, None], timeout: float
) -> list[Finding]:
    findings: list[Finding] = []
    for check in checks.table(table):
        result = await _attempt(check.name, check.run, timeout, table)
        findings += result.findings
        if check.decisive and not result.passed:
            return findings

    async def read_topics() -> list[Finding]:
        topics.update(dict.fromkeys(await checks.topics(table)))
        return []

    return findings + (await _attempt("destination", read_topics, timeout, table)).findings


class _Result(NamedTuple):
    findings: list[Finding]
    passed: bool
    """The checks after it make sense."""


async def _attempt(
    name: str,
    check: Callable[[], Awaitable[list[Finding]]],
    timeout: float,
    table: TableName | None = None,
) -> _Result:
    """Run a check; one that cannot be made is a finding that says why."""
    try:
        with anyio.fail_after(timeout):
            return _Result(await check(), passed=True)
    except Unusable as error:
        return _Result(error.findings, passed=False)
    except TimeoutError:
        reason = f"no answer within {timeout:g} s"
    except OSError as error:
        reason = type(error).__name__
    except OutboxError as error:
        reason = str(error)
    except Exception as error:  # an unforeseen error must not hide what the other checks find
        reason = f"unexpected {type(error).__name__}"
    why = "What it would have found is not known."
    run = (f"outbox schema verify --table {table}",) if table is not None else ()
    return _Result(
        [Finding(name, Severity.WARNING, f"could not be looked at: {reason}", why, run, table)], passed=False
    )


async def _destination(destination: Dispatcher | str, topics: Sequence[str], timeout: float) -> list[Finding]:
    try:
        made = load_dispatcher(destination) if isinstance(destination, str) else destination
    except Exception as error:  # another package's adapter may raise anything
        title = str(error) if isinstance(error, OutboxError) else f"unexpected {type(error).__name__}"
        why = "A relay that is given this destination does not start."
        return [Finding("broker", Severity.ERROR, title, why, ("export OUTBOX_RELAY_TO=…",))]
    return (await _attempt("broker", partial(check_broker, made, topics, timeout), 2 * timeout)).findings
