"""``outbox dead list``, ``group``, ``show`` and ``history``: nothing here changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import click

from outbox_core.cli import options
from outbox_core.cli.connection import admin_store, run
from outbox_core.cli.failures import NothingThere
from outbox_core.cli.filters import selecting, selection
from outbox_core.cli.messages import as_document, shown_payload
from outbox_core.cli.output import Column, Output
from outbox_core.cli.parameters import UUID_VALUE
from outbox_core.dead_letters import AuditRecord, DeadLetters, Filter, Group, GroupBy, LetterPlace

if TYPE_CHECKING:
    from outbox_core.record import StoredMessage
    from outbox_core.table import TableName

_MOST: Final = 100_000
_PAGE: Final = 1000
_LETTER: Final = (
    Column("sequence", "right"),
    Column("event_id"),
    Column("topic"),
    Column("key"),
    Column("attempts", "right"),
    Column("replays", "right"),
    Column("dead_at"),
    Column("last_error"),
)
_RECORD: Final = (
    Column("id"),
    Column("action"),
    Column("actor"),
    Column("started_at"),
    Column("finished_at"),
    Column("planned", "right"),
    Column("changed", "right"),
    Column("reason"),
)


@click.command("list", short_help="List dead messages, oldest death first.")
@options.table
@selecting
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=50, show_default=True, help="At most so many."
)
@options.reading
def listing(
    table: TableName,
    topic: str | None,
    code: str | None,
    tenant: UUID | None,
    since: datetime | None,
    until: datetime | None,
    event_ids: tuple[UUID, ...],
    limit: int,
    as_json: bool,
    database: str,
) -> None:
    """List dead messages, the one that died first at the top. Payloads and headers are not read."""
    wanted = selection(topic, code, tenant, since, until, event_ids)
    messages, total = run(lambda: _list(database, table, wanted, limit))
    output = Output(as_json=as_json)
    document = [as_document(message) for message in messages]
    output.document({"table": table, "total": total, "messages": document})
    rows = [
        (each.sequence, each.event_id, each.topic, each.key, each.attempts, each.replays, each.dead_at, each.last_error)
        for each in messages
    ]  # fmt: skip
    output.table(_LETTER, rows, title=f"dead in {table}", empty=f"no dead message of {table} fits")
    if total > len(messages):
        output.note(
            f"{len(messages):,} of {total:,}: --limit shows more, `outbox dead group` what they share"
        )


async def _list(
    database: str, table: TableName, wanted: Filter, limit: int
) -> tuple[list[StoredMessage], int]:
    found: list[StoredMessage] = []
    after: LetterPlace | None = None
    async with admin_store(database, table) as store:
        letters = DeadLetters(store, table)
        while len(found) < limit:
            page = await letters.list(wanted, after=after, limit=min(limit - len(found), _PAGE))
            found += page.messages
            after = page.next
            if after is None:
                break
        return found, await letters.count(wanted)


@click.command(short_help="Count dead messages by what they have in common.")
@options.table
@click.option(
    "--by",
    type=click.Choice([each.value for each in GroupBy]),
    default=GroupBy.CODE.value,
    show_default=True,
    help="What to count by.",
)
@selecting
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=100, show_default=True, help="At most so many."
)
@options.reading
def group(
    table: TableName,
    by: str,
    topic: str | None,
    code: str | None,
    tenant: UUID | None,
    since: datetime | None,
    until: datetime | None,
    event_ids: tuple[UUID, ...],
    limit: int,
    as_json: bool,
    database: str,
) -> None:
    """Count dead messages by error code, topic, tenant or hour of death, the most frequent first."""
    wanted = selection(topic, code, tenant, since, until, event_ids)

    async def read() -> Sequence[Group]:
        async with admin_store(database, table) as store:
            return await DeadLetters(store, table).group(by, wanted, limit=limit)

    groups = run(read)
    output = Output(as_json=as_json)
    output.document({"table": table, "by": by, "groups": groups})
    columns = (Column(by), Column("messages", "right"), Column("oldest"), Column("newest"))
    rows = [(each.value, each.count, each.oldest, each.newest) for each in groups]
    output.table(columns, rows, title=f"dead in {table}", empty=f"no dead message of {table} fits")


@click.command(short_help="Show one message.")
@click.argument("event_id", type=UUID_VALUE)
@options.table
@click.option("--payload", is_flag=True, help="Show payload and headers too, which may be confidential.")
@options.reading
def show(event_id: UUID, table: TableName, payload: bool, as_json: bool, database: str) -> None:
    """Show the message with this EVENT_ID, dead or not."""

    async def read() -> StoredMessage | None:
        async with admin_store(database, table) as store:
            return await DeadLetters(store, table).show(event_id, payload=payload)

    message = run(read)
    if message is None:
        raise NothingThere(f"{table} has no message with the event_id {event_id}")
    output = Output(as_json=as_json)
    document = as_document(message)
    output.document({"table": table, "message": document})
    content = {"headers": dict(message.headers or {}), "payload": shown_payload(message)} if payload else {}
    output.fields(
        {name: value for name, value in document.items() if name not in ("headers", "payload", "payload_hex")}
        | content,
        title=f"{event_id} of {table}",
    )


@click.command(short_help="Show who changed messages, when and why.")
@options.table
@click.option(
    "--unfinished", is_flag=True, help="Only what was broken off: `outbox dead resume` goes on with it."
)
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=20, show_default=True, help="At most so many."
)
@options.reading
def history(table: TableName, unfinished: bool, limit: int, as_json: bool, database: str) -> None:
    """Show the audit of a table, newest first: replays, discards, releases, postponements, clean-ups by hand."""

    async def read() -> Sequence[AuditRecord]:
        async with admin_store(database, table) as store:
            return await DeadLetters(store, table).history(unfinished=unfinished, limit=limit)

    records = run(read)
    output = Output(as_json=as_json)
    output.document({"table": table, "records": [record_document(record) for record in records]})
    rows = [
        (each.id, each.action, each.actor, each.started_at, each.finished_at, each.planned, each.changed, each.reason)
        for each in records
    ]  # fmt: skip
    output.table(_RECORD, rows, title=f"audit of {table}", empty=f"nothing is on record for {table}")


def record_document(record: AuditRecord) -> dict[str, object]:
    """An audit record for JSON."""
    names = (
        "id", "action", "actor", "reason", "filter", "as_of", "planned", "changed", "skipped", "rate", "started_at",
        "finished_at",
    )  # fmt: skip
    return {name: getattr(record, name) for name in names}
