"""Checks the table's schema, and what this role may do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outbox_core.errors import SchemaError, SchemaMissing, SchemaTooNew, SchemaTooOld
from outbox_core.finding import Finding, Severity
from outbox_core.store_checks import Unusable
from outbox_core.stores.postgres.schema import require, roles, verify
from outbox_core.stores.postgres.sql import render

if TYPE_CHECKING:
    from outbox_core.schema_tools import Difference
    from outbox_core.stores.postgres.doctor.case import TableCase

_WHY: Final = {
    "index": "Without it claims, order per key, the cleaner or dead letters read the whole table.",
    "parameter": "The table was measured with it; without it updates leave their page, or vacuum comes too late.",
    "trigger": "What runs before a message is written can change or lose it.",
    "rule": "A rule rewrites the statements of relays and of enqueue.",
    "privilege": "What this role may not read cannot be compared.",
}
_WHY_OTHERWISE: Final = (
    "A guarantee rests on it: relays and enqueue may fail, or worse, go wrong without a sign."
)


async def check_schema(case: TableCase) -> list[Finding]:
    """Check version, columns, checks, parameters, and the indexes, missing or invalid. Raises `Unusable` for a table
    this library cannot work on."""
    table = case.table
    try:
        await require(case.connection, table)
        report = await verify(case.connection, table)
    except SchemaError as error:
        title = str(error).removeprefix(f"{table}: ")
        why = "Nothing works on it as it is."
        raise Unusable([Finding("schema", Severity.ERROR, title, why, _fix(error, case), table)]) from error
    found = [_finding(difference, case) for difference in report.differences]
    seen = {finding.check for finding in found}
    if "schema" not in seen:
        found.append(Finding("schema", Severity.OK, f"as expected, version {report.version}", table=table))
    if "indexes" not in seen:
        found.append(Finding("indexes", Severity.OK, "all there and valid", table=table))
    return found


async def check_privileges(case: TableCase) -> list[Finding]:
    """Check which parts of the work this role may do."""
    table = case.table
    row = await case.connection.fetchrow(render("doctor/privileges.sql", table))
    role: str = await case.connection.fetchval("SELECT current_user")
    granted: dict[str, bool] = {} if row is None else dict(row)
    may = [name for name, given in granted.items() if given]
    if "relay" in may:
        return [Finding("privileges", Severity.OK, f"{role} may {', '.join(may)}", table=table)]
    only = f"may not relay; it may only {' and '.join(may)}"
    title = f"the role {role} {only if may else 'may do nothing with this table'}"
    return [
        Finding(
            "privileges",
            Severity.WARNING if may else Severity.ERROR,
            title,
            "A relay that connects with this role does not start.",
            (roles(table, relay=role),),
            table,
        )
    ]


def _finding(difference: Difference, case: TableCase) -> Finding:
    return Finding(
        "indexes" if difference.kind == "index" else "schema",
        Severity.ERROR if difference.severity == "error" else Severity.WARNING,
        f"{difference.kind} {difference.name}: expected {difference.expected}, found {difference.found}",
        _WHY.get(difference.kind, _WHY_OTHERWISE),
        (difference.mend,),
        case.table,
    )


def _fix(error: SchemaError, case: TableCase) -> tuple[str, ...]:
    match error:
        case SchemaMissing():
            return (f"outbox schema create --table {case.table}",)
        case SchemaTooOld():
            return (f"outbox schema upgrade --table {case.table}",)
        case SchemaTooNew():
            return ("pip install --upgrade outbox-core",)
        case _:
            return (f"outbox schema verify --table {case.table}",)
