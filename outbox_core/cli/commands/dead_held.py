"""``outbox dead release`` and ``postpone``: messages that wait, and those behind them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import click

from outbox_core.cli import options
from outbox_core.cli.commands.dead_looking import record_document
from outbox_core.cli.confirm import actor_of, asked_reason, confirm
from outbox_core.cli.connection import admin_store, run
from outbox_core.cli.failures import NothingThere
from outbox_core.cli.messages import as_document
from outbox_core.cli.output import Column, Output, shown
from outbox_core.cli.parameters import DURATION, MOMENT_AHEAD, UUID_VALUE
from outbox_core.dead_letters import AuditRecord, DeadLetters
from outbox_core.record import State, StoredMessage

if TYPE_CHECKING:
    from outbox_core.table import TableName

_NIL = UUID(int=0)
_COLUMNS = (
    Column("event_id"),
    Column("topic"),
    Column("key"),
    Column("state"),
    Column("attempts", "right"),
    Column("due"),
    Column("last_error"),
)


@click.command(short_help="Let the message at the head of a key go.")
@click.argument("key")
@options.table
@click.option("--tenant", type=UUID_VALUE, default=_NIL, help="The tenant the key belongs to.")
@options.changing
def release(
    key: str,
    table: TableName,
    tenant: UUID,
    yes: bool,
    reason: str | None,
    actor: str | None,
    as_json: bool,
    database: str,
) -> None:
    """Let the first message of KEY go: replayed if it is dead, due now if it waits. Those behind it follow."""
    output = Output(as_json=as_json)

    async def find() -> StoredMessage | None:
        async with admin_store(database, table) as store:
            return await DeadLetters(store, table).head(key, tenant_id=tenant)

    head = run(find)
    if head is None:
        whose = (
            "without a tenant (for a tenant's key give --tenant)" if tenant == _NIL else f"of tenant {tenant}"
        )
        raise NothingThere(f"no message of {table} with the key {key!r} waits, {whose}; nothing was changed")
    _show(output, [head], title=f"head of {key} in {table}")
    if head.state is State.IN_FLIGHT:
        raise NothingThere(f"the head of {key!r} is in flight, with a relay; nothing was changed")
    why = asked_reason(reason)
    what = "replay" if head.state is State.DEAD else "make due now"
    confirm(f"{what} this 1 message of {table}", yes=yes)

    async def do() -> StoredMessage | None:
        async with admin_store(database, table) as store:
            letters = DeadLetters(store, table)
            return await letters.release(key, tenant_id=tenant, actor=actor_of(actor), reason=why)

    released = run(do)
    if released is None:
        raise NothingThere(f"the head of {key!r} has moved on meanwhile; nothing was changed")
    output.document({"table": table, "released": as_document(released)})
    output.line(f"released {released.event_id}")


@click.command(short_help="Set when pending messages are due.")
@click.argument("event_ids", type=UUID_VALUE, nargs=-1, required=True)
@options.table
@click.option("--delay", type=DURATION, help="So long from now; 0 is now.")
@click.option(
    "--until", type=MOMENT_AHEAD, help="At this time, 2026-01-31T08:00:00Z, or so long from now, 2h."
)
@options.changing
def postpone(
    event_ids: tuple[UUID, ...],
    table: TableName,
    delay: float | None,
    until: datetime | None,
    yes: bool,
    reason: str | None,
    actor: str | None,
    as_json: bool,
    database: str,
) -> None:
    """Set when the pending messages with these EVENT_IDS are due, later or sooner. Others are left alone."""
    if (delay is None) == (until is None):
        raise click.UsageError("give either --delay or --until", ctx=click.get_current_context(silent=True))
    if until is not None and until <= datetime.now(UTC):
        raise click.BadParameter(
            f"{shown(until)} is in the past; --delay 0 makes messages due now",
            ctx=click.get_current_context(silent=True),
            param_hint="--until",
        )
    output = Output(as_json=as_json)

    async def find() -> list[StoredMessage]:
        async with admin_store(database, table) as store:
            letters = DeadLetters(store, table)
            found = [await letters.show(event_id) for event_id in event_ids]
            return [message for message in found if message is not None]

    messages = run(find)
    pending = [message for message in messages if message.state is State.PENDING]
    if messages:
        _show(output, messages, title=f"in {table}")
    if not pending:
        raise NothingThere(f"none of these is a pending message of {table}; nothing was changed")
    moment = until if until is not None else datetime.now(UTC) + timedelta(seconds=delay or 0.0)
    output.note(f"{len(pending):,} pending messages would be due at {shown(moment)}")
    why = asked_reason(reason)
    confirm(f"make {len(pending):,} pending messages of {table} due at {shown(moment)}", yes=yes)

    async def do() -> AuditRecord:
        async with admin_store(database, table) as store:
            return await DeadLetters(store, table).postpone(
                event_ids,
                until=until,
                delay=None if delay is None else timedelta(seconds=delay),
                actor=actor_of(actor),
                reason=why,
            )

    record = run(do)
    output.document({"table": table, "record": record_document(record)})
    output.line(f"postponed {record.changed:,} messages, on record as {record.id}")
    if record.skipped:
        output.note(f"{record.skipped:,} were not pending and were left alone")


def _show(output: Output, messages: list[StoredMessage], *, title: str) -> None:
    rows = [
        (each.event_id, each.topic, each.key, each.state, each.attempts, each.available_at, each.last_error)
        for each in messages
    ]
    output.table(_COLUMNS, rows, title=title)
