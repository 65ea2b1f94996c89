"""Checks vacuum and bloat: a queue table depends on being vacuumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_core.finding import Finding, Severity
from outbox_core.stores.postgres.sql import render

if TYPE_CHECKING:
    from outbox_core.stores.postgres.doctor.case import TableCase
    from outbox_core.stores.postgres.doctor.server import Server


async def check_autovacuum(case: TableCase, server: Server | None) -> list[Finding]:
    """Check that autovacuum covers this table and keeps up with freezing."""
    table = case.table
    row = await case.connection.fetchrow(render("doctor/vacuum.sql", table))
    if row is None:
        return []
    findings: list[Finding] = []
    for name in ("autovacuum", "track_counts"):
        if server is not None and not server.facts[name]:
            findings.append(
                _off(case, f"{name} is off for the whole server",
                     f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()")
            )  # fmt: skip
    if not row["autovacuum"]:
        findings.append(
            _off(
                case,
                "autovacuum is off for this table",
                f"ALTER TABLE {table.quoted} RESET (autovacuum_enabled)",
            )
        )
    if row["frozen_age"] > case.options.limits.wraparound:
        findings.append(
            Finding(
                "autovacuum",
                Severity.WARNING,
                f"it was last frozen {row['frozen_age']} transactions ago",
                "At about two billion the server stops taking writes.",
                (f"VACUUM (FREEZE) {table.quoted}",),
                table,
            )
        )
    return findings or [Finding("autovacuum", Severity.OK, "autovacuum looks after it", table=table)]


async def check_bloat(case: TableCase) -> list[Finding]:
    """Check for dead row versions, and for indexes much larger than their content."""
    table, limits = case.table, case.options.limits
    row = await case.connection.fetchrow(render("doctor/vacuum.sql", table))
    findings: list[Finding] = []
    if row is not None and row["dead"] > max(limits.dead_rows, row["live"]):
        vacuumed = "never" if row["vacuumed_at"] is None else f"{row['vacuumed_at']:%Y-%m-%d %H:%M:%S %Z}"
        findings.append(
            Finding(
                "bloat",
                Severity.WARNING,
                f"{row['dead']} dead row versions beside {row['live']} live ones, last vacuumed: {vacuumed}",
                "Claims and the cleaner read past them, and the table grows. If a vacuum does not help, something holds"
                " old rows back: see the findings about the horizon.",
                (f"VACUUM (VERBOSE, ANALYZE) {table.quoted}",),
                table,
            )
        )
    for index in await case.connection.fetch(render("doctor/indexes.sql", table)):
        if index["bytes"] > max(limits.index_bytes, limits.index_growth * index["needed"]):
            findings.append(
                Finding(
                    "bloat",
                    Severity.WARNING,
                    f"the index {index['name']} has {_megabytes(index['bytes'])} for what needs about"
                    f" {_megabytes(index['needed'])}",
                    "It takes disk and memory that nothing uses.",
                    (index["fix"],),
                    table,
                )
            )
    return findings or [Finding("bloat", Severity.OK, "little that is not in use", table=table)]


def _off(case: TableCase, title: str, run: str) -> Finding:
    why = "Every message leaves several dead row versions behind; without vacuum the queue gets slower every hour."
    return Finding("autovacuum", Severity.ERROR, title, why, (run,), case.table)


def _megabytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"
