"""``outbox enqueue``: write messages by hand, for trying things."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import click

from outbox_core.cli import options
from outbox_core.cli.connection import connect, run, schema_tools, translating
from outbox_core.cli.failures import ExitCode
from outbox_core.cli.output import Output
from outbox_core.cli.parameters import DURATION, UUID_VALUE
from outbox_core.errors import MessageError, MessageTooLarge
from outbox_core.message import Message
from outbox_core.outbox import Outbox

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
    template = Message(
        topic,
        None,
        tenant_id=tenant or _NIL,
        key=key,
        headers=dict(_header(text) for text in headers),
        delay=None if delay is None else timedelta(seconds=delay),
    )
    given = _payloads(payload, lines=lines, event_id=event_id)
    messages = [_message(template, each, event_id) for each in given]

    async def write() -> list[int]:
        async with connect(database) as connection:
            with translating(database, table, "enqueue"):
                await schema_tools(database).require(connection, table)
                async with connection.transaction():
                    return await Outbox(table).enqueue_many(connection, messages)

    try:
        sequences = run(write)
    except MessageTooLarge as error:
        raise _of_line(error, _too_large(given, template, error)) from None
    output = Output(as_json=as_json)
    written = [
        {"event_id": message.event_id, "sequence": sequence}
        for message, sequence in zip(messages, sequences, strict=True)
    ]
    output.document({"table": table, "messages": written})
    output.table(
        ("sequence", "event_id"), [(each["sequence"], each["event_id"]) for each in written], title=str(table)
    )


class _Payload(NamedTuple):
    """JSON text, and the line of standard input that it is, None when it is all of what was given."""

    text: str
    line: int | None


class _BadLine(click.ClickException):
    """Raised when one of several lines is no message. None of them was written."""

    exit_code = ExitCode.MESSAGE


def _payloads(payload: str, *, lines: bool, event_id: UUID | None) -> Sequence[_Payload]:
    if lines and payload != "-":
        raise click.UsageError("--lines reads standard input; give - as the payload")
    if lines and event_id is not None:
        raise click.UsageError("--lines writes several messages, which cannot have one --event-id")
    if payload != "-":
        return [_Payload(payload, None)]
    text = _read()
    if not lines:
        return [_Payload(text, None)]
    # Not splitlines: JSON may have other separators of lines, such as U+2028, inside a string.
    each = enumerate(text.split("\n"), start=1)
    return [_Payload(line, number) for number, line in each if line.strip()]


def _read() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _BadLine(f"line {line} of standard input is not UTF-8; nothing was written") from None


def _message(template: Message, payload: _Payload, event_id: UUID | None) -> Message:
    try:
        return Message.from_json(
            template.topic,
            payload.text,
            tenant_id=template.tenant_id,
            event_id=event_id,
            key=template.key,
            headers=template.headers,
            delay=template.delay,
        )
    except MessageError as error:
        raise _of_line(error, payload.line) from None


def _of_line(error: MessageError, line: int | None) -> Exception:
    """The error with the number of the line it is about. The parser was given one line and calls it the first."""
    if line is None:
        return error
    text = str(error).replace(" at line 1, column ", " at column ")
    return _BadLine(f"line {line} of standard input: {text}; nothing was written [{error.code}]")


def _too_large(given: Sequence[_Payload], template: Message, error: MessageTooLarge) -> int | None:
    headers = json.dumps(dict(template.headers), ensure_ascii=False, separators=(",", ":"))
    size = error.size - (len(headers.encode()) if template.headers else 0)
    return next((each.line for each in given if len(each.text.encode()) == size), None)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter("write it as NAME=VALUE", param_hint="--header")
    return name, value
