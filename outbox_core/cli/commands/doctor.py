"""``outbox doctor``: what is wrong, why it matters, and what to run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
from rich.padding import Padding
from rich.text import Text

from outbox_core.cli import options
from outbox_core.cli.connection import run
from outbox_core.cli.failures import ExitCode
from outbox_core.cli.output import Output, visible
from outbox_core.cli.parameters import DATABASE, DURATION, TABLE
from outbox_core.doctor import Finding, Limits, Severity, diagnose, worst

if TYPE_CHECKING:
    from outbox_core.table import TableName

_EXIT: Final = {
    Severity.OK: ExitCode.DONE,
    Severity.NOTE: ExitCode.DONE,
    Severity.WARNING: ExitCode.WARNINGS,
    Severity.ERROR: ExitCode.FINDINGS,
}
_STYLE: Final = {
    Severity.OK: "green",
    Severity.NOTE: "cyan",
    Severity.WARNING: "yellow",
    Severity.ERROR: "bold red",
}


@click.command(short_help="Find out what is wrong, and what to do about it.")
@click.option(
    "--database", "-d", type=DATABASE, metavar="URL", help="The database.  [env var: OUTBOX_DATABASE_URL]"
)
@click.option(
    "--table",
    "-t",
    "tables",
    type=TABLE,
    multiple=True,
    help="A table; repeat it.  [env var: OUTBOX_RELAY_TABLES]",
)
@click.option("--to", metavar="URL", help="The destination.  [env var: OUTBOX_RELAY_TO]")
@click.option("--quiet", "-q", is_flag=True, help="Leave out what is as it should be.")
@click.option(
    "--long",
    "transaction_age",
    type=DURATION,
    default="5m",
    show_default=True,
    help="From when on a transaction is a long one.",
)
@click.option(
    "--timeout", type=DURATION, default="10s", show_default=True, help="How long each check may take."
)
@options.as_json
@options.debug
def doctor(
    database: str | None,
    tables: tuple[TableName, ...],
    to: str | None,
    quiet: bool,
    transaction_age: float,
    timeout: float,
    as_json: bool,
) -> int:  # fmt: skip
    """Look at settings, connection, server, tables and broker, and say what is wrong, why it matters and what to run.

    Changes nothing. Exits with 0 when all is well, 10 when something should be looked at, 11 when something must be
    mended.
    """
    if timeout <= 0:
        raise click.BadParameter("it must be longer than 0", param_hint="--timeout")

    async def look() -> list[Finding]:
        return await diagnose(
            dict(os.environ),
            database_url=database,
            tables=tables,
            dispatcher=to,
            limits=Limits(transaction_age=transaction_age),
            timeout=timeout,
        )

    findings = run(look)
    severity = worst(findings)
    _show(Output(as_json=as_json), findings, severity, quiet=quiet)
    return _EXIT[severity]


def _show(output: Output, findings: Sequence[Finding], severity: Severity, *, quiet: bool) -> None:
    output.document({"severity": severity, "findings": findings})
    shown = [each for each in findings if not quiet or each.severity is not Severity.OK]
    shown.sort(key=lambda each: -each.severity.rank)
    if not output.drawn:
        rows = [
            (each.severity, each.check, each.table, each.title, each.why, "; ".join(each.run))
            for each in shown
        ]
        output.table(("severity", "check", "table", "finding", "why", "run"), rows, empty="all is well")
        return
    for finding in shown:
        _draw(output, finding)


def _draw(output: Output, finding: Finding) -> None:
    place = "" if finding.table is None else f"{finding.table}: "
    first = Text(f"{finding.severity.value:8}", style=_STYLE[finding.severity])
    first.append(visible(f"{finding.check}: {place}{finding.title}"), style="none")
    output.console.print(first)
    if finding.why and finding.severity is not Severity.OK:
        output.console.print(Padding(Text(visible(finding.why), style="dim"), (0, 0, 0, 8)))
        for command in finding.run:
            output.console.print(Padding(Text(visible(command, keep="\n"), style="bold"), (0, 0, 0, 10)))
