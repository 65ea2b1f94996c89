"""``outbox schema``: create, verify, print, upgrade and grant."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from outbox_core import schema as schemas
from outbox_core.cli import options
from outbox_core.cli.connection import connect, run, schema_tools, translating
from outbox_core.cli.failures import ExitCode
from outbox_core.cli.output import Output
from outbox_core.cli.parameters import DURATION
from outbox_core.cli.progress import progress
from outbox_core.errors import PermissionDenied, SchemaError

if TYPE_CHECKING:
    from outbox_core.schema_tools import Report, Step
    from outbox_core.table import TableName

# PostgreSQL's versions: options are declared before a database is known.
_VERSION = click.IntRange(0, schemas.CURRENT_VERSION)
_INDEX_BUILD_SECONDS = 3700.0


@click.group(short_help="Create, verify, print and upgrade outbox tables.")
@options.debug
def schema() -> None:
    """Create, verify, print and upgrade outbox tables."""


@schema.command()
@options.table
@options.reading
def create(table: TableName, as_json: bool, database: str) -> None:
    """Create a table, with what its PostgreSQL schema shares; nothing happens when it is there."""

    async def work() -> bool:
        async with connect(database) as connection:
            with translating(database, table, "create"):
                return await schema_tools(database).create(connection, table)

    made = run(work)
    output = Output(as_json=as_json)
    output.document({"table": table, "created": made, "version": _current(database)})
    output.line(f"created {table}" if made else f"{table} is there already")


@schema.command()
@options.table
@options.reading
def verify(table: TableName, as_json: bool, database: str) -> None:
    """Compare a table with what the library needs; each difference comes with the SQL that mends it.

    Ends with 0 only when the table is as it must be: with 6 when something must be mended, with 5 when the role may not
    read the schema version.
    """

    async def work() -> Report:
        async with connect(database) as connection:
            with translating(database, table, "look at"):
                return await schema_tools(database).verify(connection, table)

    report = run(work)
    output = Output(as_json=as_json)
    readable = report.version is not None
    output.document(
        {
            "table": table,
            "version": report.version,
            "ok": report.ok and readable,
            "differences": report.differences,
        }
    )
    output.line(str(report))
    if not report.ok:
        raise click.exceptions.Exit(ExitCode.SCHEMA)
    if not readable:
        raise PermissionDenied(table, "read the schema version of", part="viewer")


@schema.command(name="print")
@options.table
@click.option(
    "--from", "from_version", type=_VERSION, default=0, show_default=True, help="The version that is there."
)
@click.option(
    "--to",
    "to_version",
    type=_VERSION,
    default=schemas.CURRENT_VERSION,
    show_default=True,
    help="The version that is wanted.",
)
@click.option("--no-transaction", is_flag=True, help="Leave out BEGIN and COMMIT.")
@options.debug
def print_sql(table: TableName, from_version: int, to_version: int, no_transaction: bool) -> None:
    """Print the SQL that makes a table, or takes it from one version to another. No database is needed."""
    sys.stdout.write(
        schemas.script(
            table, from_version=from_version, to_version=to_version, transaction=not no_transaction
        )
    )


@schema.command()
@options.table
@click.option(
    "--to",
    "to_version",
    type=_VERSION,
    default=schemas.CURRENT_VERSION,
    show_default=True,
    help="The version that is wanted.",
)
@click.option(
    "--lock-timeout",
    type=DURATION,
    default="2s",
    show_default=True,
    help="How long writers may be kept waiting by a lock that this waits for.",
)
@click.option("--wait", type=DURATION, default="1m", show_default=True, help="How long to go on trying.")
@options.reading
@click.pass_context
def upgrade(
    context: click.Context,
    table: TableName,
    to_version: int,
    lock_timeout: float,
    wait: float,
    as_json: bool,
    database: str,
) -> None:
    """Apply the steps a table lacks, without stopping relays or writers; a table that is missing is made."""
    output = Output(as_json=as_json)
    asked_for = context.get_parameter_source("to_version") is not ParameterSource.DEFAULT

    async def work() -> tuple[int, tuple[Step, ...]]:
        tools = schema_tools(database)
        async with connect(database, timeout=_INDEX_BUILD_SECONDS) as connection:
            with translating(database, table, "upgrade"):
                found = await tools.version(connection, table)
                if asked_for and to_version < found:
                    raise _no_way_back(table, found, to_version)
                missing = tools.migrations()[found:to_version]
                applied: list[Step] = []
                with progress(f"upgrading {table}", len(missing)) as advance:
                    for step in missing:
                        output.note(f"step {step.version} {step.name}; locks: {step.locks}")
                        applied += await tools.upgrade(
                            connection, table, to=step.version, lock_timeout=lock_timeout, wait=wait
                        )
                        advance(len(applied))
                # Also where no step is missing: it refuses what it cannot work with.
                await tools.upgrade(connection, table, to=to_version, lock_timeout=lock_timeout, wait=wait)
                return max(found, to_version), tuple(applied)

    version, applied = run(work)
    output.document({"table": table, "version": version, "applied": applied})
    steps = ", ".join(f"{step.version} {step.name}" for step in applied)
    output.line(
        f"{table}: applied {steps}" if steps else f"{table}: nothing to do, it is at version {version}"
    )


def _current(database: str) -> int:
    return schema_tools(database).migrations()[-1].version


def _no_way_back(table: TableName, found: int, wanted: int) -> SchemaError:
    return SchemaError(
        table,
        f"it is at version {found}, and an upgrade does not go back to {wanted}; nothing was changed. With the relays"
        f" stopped, `outbox schema print --table {table} --from {found} --to {wanted}` prints the SQL that does",
    )


@schema.command()
@options.table
@click.option("--migrator", metavar="ROLE", help="Owns the tables and changes them.")
@click.option("--producer", metavar="ROLE", help="Enqueues.")
@click.option("--relay", metavar="ROLE", help="Delivers and cleans.")
@click.option("--viewer", metavar="ROLE", help="Sees everything but content.")
@click.option("--operator", metavar="ROLE", help="Replays, discards, releases and postpones.")
@options.debug
def roles(
    table: TableName,
    migrator: str | None,
    producer: str | None,
    relay: str | None,
    viewer: str | None,
    operator: str | None,
) -> None:
    """Print the SQL that grants existing roles their part of a table. No database is needed."""
    text = schemas.roles(
        table, migrator=migrator, producer=producer, relay=relay, viewer=viewer, operator=operator
    )
    sys.stdout.write(text)
