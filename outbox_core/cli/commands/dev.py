"""``outbox dev``: servers and a relay to try an application against."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click

from outbox_core.cli import options
from outbox_core.cli.connection import connect, run, schema_tools, translating
from outbox_core.cli.logs import configure
from outbox_core.cli.output import Output
from outbox_core.cli.parameters import DATABASE, TABLE, note_database
from outbox_core.cli.settings import SettingType
from outbox_core.cli.tail import Tail
from outbox_core.config import VARIABLES, LogSettings, masked_database_url
from outbox_core.dispatcher import load_dispatcher
from outbox_core.embedded.nats import EmbeddedNats
from outbox_core.embedded.postgres import EmbeddedPostgres
from outbox_core.relay import Relay

if TYPE_CHECKING:
    from outbox_core.embedded.server import EmbeddedServer
    from outbox_core.table import TableName

_POSTGRES_PORT: Final = 15432
_NATS_PORT: Final = 14222
_GRACE: Final = 3.0
_PORT: Final = click.IntRange(0, 65535)
_DESTINATION: Final = next(variable for variable in VARIABLES if variable.name == "OUTBOX_RELAY_TO")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    tables: tuple[TableName, ...]
    postgres_port: int
    nats_port: int
    data: Path | None
    database: str | None
    to: str | None

    def folder(self, name: str) -> Path | None:
        return None if self.data is None else self.data / name


@click.command(short_help="Keep a PostgreSQL, a NATS and a relay up, for trying an app against.")
@click.option(
    "--table",
    "-t",
    "tables",
    type=TABLE,
    multiple=True,
    default=("orders_outbox",),
    show_default=True,
    help="The outbox table, created unless it is there; repeat it for several.",
)
@click.option(
    "--postgres-port", type=_PORT, default=_POSTGRES_PORT, show_default=True, help="0 takes a free one."
)
@click.option("--nats-port", type=_PORT, default=_NATS_PORT, show_default=True, help="0 takes a free one.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the servers' data in this folder.  [default: a temporary one, which goes with them]",
)
@click.option(
    "--database", "-d", type=DATABASE, metavar="URL", help="Use this PostgreSQL instead of starting one."
)
@click.option(
    "--to",
    type=SettingType(_DESTINATION),
    help="Deliver to this dispatcher URL instead of a NATS of its own.",
)
@options.as_json
@options.debug
def dev(
    tables: tuple[TableName, ...],
    postgres_port: int,
    nats_port: int,
    data: Path | None,
    database: str | None,
    to: str | None,
    as_json: bool,
) -> None:
    """Start a PostgreSQL and a NATS JetStream from wheels, create the table, run a relay, and show what passes.

    First come the addresses to put into an application, then a line for each message that the broker has acknowledged:
    topic, event id, key and payload, with --json a document a line. A stream is made for the first segment of each
    topic. The servers listen on this machine alone and ask for no password. Ctrl-C or SIGTERM ends all of it.
    """
    wanted = _Wanted(
        tables=tuple(dict.fromkeys(tables)),
        postgres_port=postgres_port,
        nats_port=nats_port,
        data=data,
        database=database,
        to=to,
    )
    configure(LogSettings(level="warning"))
    run(lambda: _serve(wanted, Output(as_json=as_json)))


async def _serve(wanted: _Wanted, output: Output) -> None:
    """Until SIGINT or SIGTERM, which end it in order however far it has come, or until a part of it fails."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
                async for _ in received:
                    tasks.cancel_scope.cancel()

        tasks.start_soon(listen)
        try:
            async with AsyncExitStack() as stack:
                relay, servers = await _started(stack, wanted, output)
                for server in servers:
                    tasks.start_soon(server.watch)
                await relay.run(grace=_GRACE, signals=False)
        except Exception as error:
            # Raised outside the task group, which would make a group of it.
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _started(
    stack: AsyncExitStack, wanted: _Wanted, output: Output
) -> tuple[Relay, Sequence[EmbeddedServer]]:
    servers: list[EmbeddedServer] = []
    database, to = wanted.database, wanted.to
    if database is None:
        postgres = EmbeddedPostgres(port=wanted.postgres_port, data=wanted.folder("postgres"))
        servers.append(await stack.enter_async_context(postgres))
        database = postgres.url
        note_database(database)
    await _create(database, wanted.tables)
    if to is None:
        nats = EmbeddedNats(port=wanted.nats_port, data=wanted.folder("nats"))
        servers.append(await stack.enter_async_context(nats))
        to = nats.url
        tail = await stack.enter_async_context(_to_embedded(to, output))
    else:
        tail = Tail(load_dispatcher(to), output)
    _introduce(output, wanted, database, to)
    return Relay(database, tables=wanted.tables, dispatcher=tail), servers


@asynccontextmanager
async def _to_embedded(url: str, output: Output) -> AsyncGenerator[Tail]:
    from outbox_core.embedded.streams import Streams

    async with Streams(url) as streams:
        yield Tail(load_dispatcher(url), output, before=streams.provide)


async def _create(database: str, tables: tuple[TableName, ...]) -> None:
    async with connect(database) as connection:
        for table in tables:
            with translating(database, table, "create"):
                await schema_tools(database).create(connection, table)


def _introduce(output: Output, wanted: _Wanted, database: str, to: str) -> None:
    database, to = masked_database_url(database), _DESTINATION.kind.show(to)
    output.document({"database": database, "to": to, "tables": wanted.tables})
    output.line(f"export OUTBOX_DATABASE_URL={database}")
    output.line(f"export OUTBOX_RELAY_TO={to}")
    if not output.as_json:
        example = f"outbox enqueue orders.order.placed.v1 '{{\"id\": 1}}' --table {wanted.tables[0]}"
        output.note(
            f"the relay delivers {', '.join(map(str, wanted.tables))}; Ctrl-C ends. To see a message pass: {example}"
        )
    sys.stdout.flush()
