"""``outbox clean``: delete, once and now, what a cleaner would delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from outbox_core.cleaner import Cleaner, CleanerSettings, Pass
from outbox_core.cli import options
from outbox_core.cli.confirm import actor_of, asked_reason, confirm
from outbox_core.cli.connection import admin_store, run
from outbox_core.cli.output import Output, shown
from outbox_core.cli.parameters import DURATION
from outbox_core.cli.progress import progress
from outbox_core.durations import format_duration

if TYPE_CHECKING:
    from outbox_core.admin_store import Cleanable
    from outbox_core.table import TableName


@click.command(short_help="Delete what was published, or died, long enough ago.")
@options.table
@click.option(
    "--retention",
    type=DURATION,
    envvar="OUTBOX_CLEANER_RETENTION",
    show_envvar=True,
    default="168h",
    show_default=True,
    help="Delete what was published longer ago.",
)
@click.option(
    "--dead-retention",
    type=DURATION,
    envvar="OUTBOX_CLEANER_DEAD_RETENTION",
    show_envvar=True,
    default="0",
    show_default="0: never",
    help="Delete what died longer ago, save what holds up its key.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@options.changing
def clean(
    table: TableName,
    retention: float,
    dead_retention: float,
    dry_run: bool,
    yes: bool,
    reason: str | None,
    actor: str | None,
    as_json: bool,
    database: str,
) -> None:
    """Delete what was published, and if asked what died, longer ago than a retention.

    In small batches that keep neither writers nor relays waiting. A relay does the same by itself, unless it was told
    not to.
    """
    settings = CleanerSettings(retention=retention, dead_retention=dead_retention or None)
    output = Output(as_json=as_json)
    found = run(lambda: _preview(database, table, settings))
    _show(output, table, settings, found)
    total = found.published + found.dead
    if dry_run or not total.value:
        output.document(_document(table, settings, found, None))
        return
    why = asked_reason(reason)
    confirm(f"delete {total} messages of {table}", yes=yes)
    done = run(lambda: _clean(database, table, settings, total.value, actor_of(actor), why))
    output.document(_document(table, settings, found, done))
    output.line(f"deleted {done.published:,} published and {done.dead:,} dead messages of {table}")
    if done.busy:
        output.note("another cleaner is at this table and goes on with what is left")


async def _preview(database: str, table: TableName, settings: CleanerSettings) -> Cleanable:
    async with admin_store(database, table) as store:
        return await Cleaner(store, table, settings).preview()


async def _clean(
    database: str, table: TableName, settings: CleanerSettings, expected: int, actor: str, reason: str
) -> Pass:
    async with admin_store(database, table) as store:
        with progress(f"cleaning {table}", expected) as advance:
            return await Cleaner(store, table, settings).clean(
                progress=lambda done: advance(done.published + done.dead), actor=actor, reason=reason
            )


def _show(output: Output, table: TableName, settings: CleanerSettings, found: Cleanable) -> None:
    dead = "" if settings.dead_retention is None else format_duration(settings.dead_retention)
    rows = [
        ("published", format_duration(settings.retention), found.published),
        ("dead", dead or "never deleted", found.dead),
    ]
    output.table(("state", "older than", "messages"), rows, title=f"to be deleted from {table}")
    if found.oldest is not None:
        output.note(f"the oldest is of {shown(found.oldest)}")


def _document(
    table: TableName, settings: CleanerSettings, found: Cleanable, done: Pass | None
) -> dict[str, object]:
    return {
        "table": table,
        "retention": settings.retention,
        "dead_retention": settings.dead_retention,
        "found": found,
        "deleted": None if done is None else {"published": done.published, "dead": done.dead},
        "busy": done is not None and done.busy,
    }
