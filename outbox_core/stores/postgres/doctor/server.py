"""Checks the server and the way to it: version, role in replication, encryption, connections, poolers, clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import anyio

from outbox_core.finding import Finding, Severity

if TYPE_CHECKING:
    from asyncpg import Connection

    from outbox_core.finding import Limits

_OLDEST: Final = 140000
_NEWEST_TESTED: Final = 18


@dataclass(frozen=True, slots=True)
class Server:
    """The facts about a server. ``offset`` is this host's clock minus the server's, give or take ``doubt`` s."""

    facts: Mapping[str, Any]
    offset: float
    doubt: float
    pooled: bool


async def look_at_server(connection: Connection) -> Server:
    """Ask the server twice, and take the clock from the quicker answer."""
    text = files("outbox_core.stores.postgres").joinpath("doctor/server.sql").read_text(encoding="utf-8")
    best: Server | None = None
    for _ in range(2):
        began = anyio.current_time()
        facts = await connection.fetchrow(text)
        doubt = anyio.current_time() - began
        if facts is None:
            continue
        offset = (datetime.now(UTC) - facts["now"]).total_seconds()
        pooled = facts["pid"] != connection.get_server_pid()
        if best is None or doubt < best.doubt:
            best = Server(dict(facts), offset, doubt, pooled)
    if best is None:
        raise TypeError("the server answered a question about itself with nothing")
    return best


def check_version(server: Server) -> list[Finding]:
    version, text = server.facts["version"], server.facts["version_text"]
    if version < _OLDEST:
        return [
            Finding(
                "version",
                Severity.ERROR,
                f"PostgreSQL {text} is older than {_OLDEST // 10000}",
                "Relays and the schema need functions and settings that it does not have.",
                ("SELECT version()",),
            )
        ]
    if version // 10000 > _NEWEST_TESTED:
        return [
            Finding(
                "version",
                Severity.NOTE,
                f"PostgreSQL {text} is newer than {_NEWEST_TESTED}",
                "This version of outbox-core has not been tested on it.",
                ("pip install --upgrade outbox-core",),
            )
        ]
    return [Finding("version", Severity.OK, f"PostgreSQL {text}")]


def check_connection(server: Server, limits: Limits) -> list[Finding]:
    """Check that the server takes writes, that the connection is encrypted, and that connections are left."""
    facts = server.facts
    findings: list[Finding] = []
    if facts["standby"] or facts["read_only"]:
        what = "a standby" if facts["standby"] else "read-only (default_transaction_read_only)"
        findings.append(
            Finding(
                "connection",
                Severity.ERROR,
                f"the server is {what}",
                "Relays claim and complete messages by writing: nothing can be delivered from here.",
                ("SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')",),
            )
        )
    if not facts["encrypted"] and facts["local"] is False:
        findings.append(
            Finding(
                "connection",
                Severity.WARNING,
                f"the connection to {facts['server_address']} is not encrypted",
                "Payloads and the password cross the network in the clear.",
                ("add ?sslmode=verify-full to the database URL",),
            )
        )
    used, total = facts["connections"], facts["max_connections"]
    if used > total * limits.connections:
        findings.append(
            Finding(
                "connection",
                Severity.WARNING,
                f"{used} of {total} connections are in use",
                "A relay that cannot connect delivers nothing; it needs four connections.",
                (
                    "SELECT usename, application_name, count(*) FROM pg_stat_activity GROUP BY 1, 2 ORDER BY 3 DESC",
                ),
            )
        )
    return findings or [Finding("connection", Severity.OK, f"connected as {facts['role']}")]


def check_pooler(server: Server) -> list[Finding]:
    if not server.pooled:
        return [Finding("pooler", Severity.OK, "the session belongs to this client alone")]
    return [
        Finding(
            "pooler",
            Severity.WARNING,
            "a transaction pooler stands between here and the server",
            "Session locks and notifications do not work through it: leaders are replaced by their heartbeat alone, and"
            " messages wait for the next poll.",
            ("give relays a database URL that leads to PostgreSQL itself, or to a pooler in session mode",),
        )
    ]


def check_clock(server: Server, limits: Limits) -> list[Finding]:
    if abs(server.offset) - server.doubt <= limits.clock_offset:
        return [Finding("clock", Severity.OK, "this host and the database agree on the time")]
    side = "ahead of" if server.offset > 0 else "behind"
    return [
        Finding(
            "clock",
            Severity.WARNING,
            f"the clock of this host is {abs(server.offset):.1f} s {side} the database's",
            "What an application gives as available_at comes due that much too early or too late, and times in logs do"
            " not match those of the table. Leases and retries go by the database's clock alone and are right.",
            ("timedatectl status", "SELECT clock_timestamp()"),
        )
    ]


def check_monitoring(server: Server) -> list[Finding]:
    """Check that this role would see the sessions of others."""
    if server.facts["sees_everybody"] or server.facts["superuser"]:
        return []
    return [
        Finding(
            "horizon",
            Severity.NOTE,
            f"the role {server.facts['role']} cannot see what the sessions of others do",
            "A long transaction of another role that holds back vacuum would not be found.",
            (server.facts["see_everybody"],),
        )
    ]
