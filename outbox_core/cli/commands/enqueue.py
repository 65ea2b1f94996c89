"""``outbox enqueue``: write messages by hand, for trying things."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import click

from outbox_core.cli import options
from outbox_core.cli.connection import connect, run, translating
from outbox_core.cli.output import Output
from outbox_core.cli.parameters import DURATION, UUID_VALUE
from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.schema import require

if TYPE_CHECKING:
    from outbox_core.table import TableName

_NIL = UUID(int=0)


@click.command(short_help="Write a message, for trying things.")
@click.argument("topic")
@click.argument("payload", metavar="[PAYLOAD|-]", default="null")
@options.table
@click.option("--key", help="The ordering key.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; repeat for several."
)
@click.option("--tenant", type=UUID_VALUE, help="The tenant.  [default: the nil UUID]")
@click.option("--event-id", type=UUID_VALUE, help="The idempotency key.  [default: a fresh UUIDv7]")
@click.option("--delay", type=DURATION, help="Not to be delivered before so long from now, as in 5m.")
@click.option("--lines", is_flag=True, help="With -: each line of standard input is a message of its own.")
@options.reading
def enqueue(
    topic: str,
    payload: str,
    table: TableName,
    key: str | None,
    headers: tuple[str, ...],
    tenant: UUID | None,
    event_id: UUID | None,
    delay: float | None,
    lines: bool,
    as_json: bool,
    database: str,
) -> None:
    """Write a message with TOPIC and PAYLOAD, which is JSON; - reads it from standard input.

    The message is committed at once and belongs to no other write: a service enqueues in its own transaction instead.
    """
    named = dict(_header(text) for text in headers)
    messages = [
        Message.from_json(
            topic,
            text,
            tenant_id=tenant or _NIL,
            event_id=event_id,
            key=key,
            headers=named,
            delay=None if delay is None else timedelta(seconds=delay),
        )
        for text in _payloads(payload, lines=lines, event_id=event_id)
    ]

    async def write() -> list[int]:
        async with connect(database) as connection:
            with translating(table, "enqueue"):
                await require(connection, table)
                async with connection.transaction():
                    return await Outbox(table).enqueue_many(connection, messages)

    sequences = run(write)
    output = Output(as_json=as_json)
    written = [
        {"event_id": message.event_id, "sequence": sequence}
        for message, sequence in zip(messages, sequences, strict=True)
    ]
    output.document({"table": table, "messages": written})
    output.table(
        ("sequence", "event_id"), [(each["sequence"], each["event_id"]) for each in written], title=str(table)
    )


def _payloads(payload: str, *, lines: bool, event_id: UUID | None) -> Sequence[str]:
    if lines and payload != "-":
        raise click.UsageError("--lines reads standard input; give - as the payload")
    if lines and event_id is not None:
        raise click.UsageError("--lines writes several messages, which cannot have one --event-id")
    if payload != "-":
        return [payload]
    text = sys.stdin.read()
    return [line for line in text.splitlines() if line.strip()] if lines else [text]


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter("write it as NAME=VALUE", param_hint="--header")
    return name, value
