"""``outbox status``: how tables stand, once or as it changes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import anyio
import click
from rich.live import Live

from outbox_core.cli import options
from outbox_core.cli.connection import admin_store, run
from outbox_core.cli.output import Output
from outbox_core.cli.parameters import DURATION
from outbox_core.cli.standing import COLUMNS, Standing, drawing
from outbox_core.errors import StorageError
from outbox_core.status import Look

if TYPE_CHECKING:
    from outbox_core.admin_store import AdminStore
    from outbox_core.table import TableName


@click.command(short_help="What is pending, in flight and dead, and who leads.")
@options.tables
@click.option("--watch", "-w", is_flag=True, help="Look again and again, until Ctrl-C, and show rates.")
@click.option(
    "--interval", type=DURATION, default="2s", show_default=True, help="With --watch: how often to look."
)
@click.option("--count", type=click.IntRange(1), help="With --watch: end after so many looks.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000_000),
    default=100_000,
    show_default=True,
    help="Where counting stops, so that a look costs about a tenth of a second.",
)
@options.reading
def status(
    tables: tuple[TableName, ...],
    watch: bool,
    interval: float,
    count: int | None,
    limit: int,
    as_json: bool,
    database: str,
) -> None:
    """Show how tables stand: pending messages, the oldest of them, those in flight and dead, and the leader.

    With --watch also how fast messages come in and go out, and whether a destination seems to be away. On a terminal
    the table is drawn anew with every look; in a pipe each look adds its lines, and with --json a document a line.
    """
    if not tables:
        raise click.UsageError("name a table with --table, or several in OUTBOX_RELAY_TABLES")
    if interval <= 0:
        raise click.BadParameter("it must be longer than 0", param_hint="--interval")
    view = _View(tables, Look(limit=limit), Output(as_json=as_json))
    if watch:
        run(lambda: view.watch(database, interval, count))
    else:
        run(lambda: view.once(database))


class _View:
    """The tables one run of the command shows, and what was seen of each the last time."""

    def __init__(self, tables: tuple[TableName, ...], look: Look, output: Output) -> None:
        self._tables = tables
        self._look = look
        self._output = output
        self._seen: dict[TableName, Standing] = {}

    async def once(self, database: str) -> None:
        async with admin_store(database, *self._tables) as store:
            found = await self._standings(store)
        self._output.document({"tables": [each.document() for each in found]})
        self._output.table(COLUMNS, [each.row() for each in found])

    async def watch(self, database: str, interval: float, count: int | None) -> None:
        live: AbstractContextManager[Live | None] = nullcontext()
        if self._output.drawn:
            live = Live(console=self._output.console, auto_refresh=False)
        looks = 0
        with live as screen:
            async with admin_store(database, *self._tables) as store:
                while True:
                    looks += 1
                    await self._show(store, screen, first=looks == 1)
                    if looks == count:
                        return
                    await anyio.sleep(interval)

    async def _show(self, store: AdminStore, screen: Live | None, *, first: bool) -> None:
        trouble = ""
        try:
            found = await self._standings(store)
        except StorageError as error:
            # A watch outlasts the outage it may have been started to see.
            trouble, found = str(error), list(self._seen.values())
        if screen is not None:
            screen.update(drawing(found, trouble), refresh=True)
            return
        if trouble:
            self._output.note(f"error: {trouble}")
            return
        self._output.document({"tables": [each.document() for each in found]})
        self._output.table(COLUMNS, [each.row() for each in found], header=first)

    async def _standings(self, store: AdminStore) -> list[Standing]:
        for table in self._tables:
            now = await store.status(table, self._look)
            self._seen[table] = Standing.since(self._seen.get(table), now)
        return [self._seen[table] for table in self._tables]
