"""``outbox pending``: the messages still to be delivered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

import click

from outbox_core.cli import options
from outbox_core.cli.connection import connect, run, schema_tools, translating
from outbox_core.cli.messages import as_document, shown_headers, shown_payload
from outbox_core.cli.output import Column, Output
from outbox_core.cli.parameters import UUID_VALUE
from outbox_core.outbox import Outbox

if TYPE_CHECKING:
    from outbox_core.record import StoredMessage
    from outbox_core.table import TableName

_COLUMNS: Final = (
    Column("sequence", "right"),
    Column("event_id"),
    Column("topic"),
    Column("key"),
    Column("state"),
    Column("attempts", "right"),
    Column("age", "right"),
    Column("due"),
    Column("last_error"),
)


@click.command(short_help="List the messages still to be delivered.")
@options.table
@click.option("--tenant", type=UUID_VALUE, help="Only this tenant's.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="At most so many."
)
@click.option("--payload", is_flag=True, help="Show payloads and headers too, which may be confidential.")
@options.reading
def pending(
    table: TableName, tenant: UUID | None, limit: int, payload: bool, as_json: bool, database: str
) -> None:
    """List the messages of a table that are neither published nor dead, in the order in which they come up."""

    async def read() -> list[StoredMessage]:
        async with connect(database) as connection:
            with translating(database, table, "list"):
                await schema_tools(database).require(connection, table)
                return await Outbox(table).pending(connection, tenant_id=tenant, limit=limit, payload=payload)

    messages = run(read)
    output = Output(as_json=as_json)
    output.document({"table": table, "messages": [as_document(message) for message in messages]})
    now = datetime.now(UTC)
    columns = (*_COLUMNS, Column("headers"), Column("payload")) if payload else _COLUMNS
    rows = [
        (*_row(message, now), *((shown_headers(message), shown_payload(message)) if payload else ()))
        for message in messages
    ]
    output.table(columns, rows, title=f"pending in {table}", empty=f"nothing is pending in {table}")
    if len(messages) == limit:
        output.note(f"there may be more than {limit}: `outbox status` counts them, --limit shows more")


def _row(message: StoredMessage, now: datetime) -> tuple[object, ...]:
    age = timedelta(seconds=max(0, round((now - message.created_at).total_seconds())))
    return (
        message.sequence,
        message.event_id,
        message.topic,
        message.key,
        message.state,
        message.attempts,
        age,
        message.available_at,
        message.last_error,
    )
