"""``outbox dead replay``, ``discard`` and ``resume``: plan, show, ask, do, and leave a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import click

from outbox_core.cli import options
from outbox_core.cli.commands.dead_looking import record_document
from outbox_core.cli.confirm import actor_of, asked_reason, confirm
from outbox_core.cli.connection import admin_store, run
from outbox_core.cli.failures import NothingThere
from outbox_core.cli.filters import bounded, selecting, selection
from outbox_core.cli.output import Column, Output, shown
from outbox_core.cli.parameters import DURATION, RATE, UUID_VALUE
from outbox_core.cli.plans import read_plan
from outbox_core.cli.progress import progress
from outbox_core.dead_letters import Action, AuditRecord, DeadLetters, Filter, Outcome, Plan

if TYPE_CHECKING:
    from outbox_core.table import TableName

F = TypeVar("F", bound=Callable[..., Any])

_DONE: Final = {Action.REPLAY: "replayed", Action.DISCARD: "discarded"}
_PLANNED: Final = (
    click.option("--all", "everything", is_flag=True, help="Every dead message, when that is what is meant."),
    click.option(
        "--plan",
        "saved",
        type=click.File("r"),
        help="A plan that --dry-run --json wrote; - reads it from a pipe.",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Show the plan and change nothing; with --json, to be kept for --plan.",
    ),
)


def _planning(command: F) -> F:
    for option in reversed(_PLANNED):
        command = option(command)
    return command


@click.command(short_help="Have dead messages delivered again.")
@options.table
@selecting
@_planning
@click.option("--published", is_flag=True, help="Deliver published messages again, not dead ones.")
@click.option("--rate", type=RATE, help="Spread them over time: so many a second, 0.001 to 1,000,000.")
@click.option(
    "--dedupe-window",
    "windows",
    type=(str, DURATION),
    multiple=True,
    metavar="CONSUMER DURATION",
    help="Warn of messages older than what this consumer remembers; can be repeated.",
)
@options.changing
def replay(
    table: TableName, rate: float | None, published: bool, windows: tuple[tuple[str, float], ...], **given: Any
) -> None:  # fmt: skip
    """Have dead messages delivered again, as if they were new.

    Shows what would be replayed and asks. What has moved on since then is left alone. Messages keep their event_id, so
    that consumers recognise them; a replayed message does not hold its key.
    """
    order = _Order(table, Action.REPLAY, rate=rate, published=published, windows=dict(windows), **given)
    order.carry_out()


@click.command(short_help="Delete dead messages for good.")
@options.table
@selecting
@_planning
@options.changing
def discard(table: TableName, **given: Any) -> None:
    """Delete dead messages for good. Shows what would be deleted and asks; only the audit keeps their number."""
    _Order(table, Action.DISCARD, **given).carry_out()


@click.command(short_help="Go on with a replay or discard that was broken off.")
@click.argument("audit_id", type=UUID_VALUE)
@options.table
@options.changing
def resume(
    audit_id: UUID,
    table: TableName,
    yes: bool,
    reason: str | None,
    actor: str | None,
    as_json: bool,
    database: str,
) -> None:
    """Go on with a replay or discard whose process has ended; `outbox dead history --unfinished` lists them.

    Who goes on and why is put on record beside who began it.
    """
    output = Output(as_json=as_json)

    async def find() -> AuditRecord | None:
        async with admin_store(database, table) as store:
            return await store.audit(table, audit_id)

    record = run(find)
    if record is None:
        raise NothingThere(f"the audit of {table} has no record {audit_id}")
    if record.finished_at is not None:
        raise NothingThere(
            f"the {record.action.value} {audit_id} was finished on {shown(record.finished_at)}"
        )
    left = max(record.planned - record.changed, 0)
    output.note(f"{record.changed:,} of {record.planned:,} done by {record.actor}: {record.reason}")
    why = asked_reason(reason)
    confirm(f"go on with this {record.action.value} of {left:,} messages of {table}", yes=yes)

    async def go_on() -> Outcome:
        async with admin_store(database, table) as store:
            with progress(f"{record.action.value} {table}", record.planned) as advance:
                return await DeadLetters(store, table).resume(
                    audit_id,
                    actor=actor_of(actor),
                    reason=why,
                    progress=lambda now: advance(now.changed),
                )

    outcome = run(go_on)
    _report(output, outcome)
    output.document({"table": table, "record": record_document(outcome.record)})


class _Order:
    """One replay or discard, from its options to its report."""

    def __init__(
        self,
        table: TableName,
        action: Action,
        *,
        topic: str | None,
        code: str | None,
        tenant: UUID | None,
        since: datetime | None,
        until: datetime | None,
        event_ids: tuple[UUID, ...],
        everything: bool,
        saved: IO[str] | None,
        dry_run: bool,
        yes: bool,
        reason: str | None,
        actor: str | None,
        as_json: bool,
        database: str,
        rate: float | None = None,
        published: bool = False,
        windows: dict[str, float] | None = None,
    ) -> None:
        self._table = table
        self._action = action
        self._wanted = selection(topic, code, tenant, since, until, event_ids, everything=everything)
        self._saved = saved
        self._dry_run = dry_run
        self._yes = yes
        self._reason = reason
        self._actor = actor
        self._database = database
        self._rate = rate
        self._published = published
        self._windows = {name: timedelta(seconds=seconds) for name, seconds in (windows or {}).items()}
        self._output = Output(as_json=as_json)

    def carry_out(self) -> None:
        plan, left = run(self._plan)
        self._show(plan, left)
        if self._dry_run:
            self._output.document(self._document(plan, None))
            return
        why = asked_reason(self._reason)
        confirm(f"{self._action.value} {left:,} messages of {self._table}", yes=self._yes)
        outcome = run(lambda: self._do(plan, actor_of(self._actor), why))
        _report(self._output, outcome)
        self._output.document(self._document(plan, outcome))

    async def _plan(self) -> tuple[Plan, int]:
        """The plan, and how many of its messages are still there to be changed."""
        async with admin_store(self._database, self._table) as store:
            letters = DeadLetters(store, self._table, dedupe_windows=self._windows)
            if self._saved is None:
                plan = await letters.plan(bounded(self._wanted), published=self._published)
                if not plan.total:
                    kind = "published" if self._published else "dead"
                    raise NothingThere(f"no {kind} message of {self._table} fits; nothing was changed")
                return plan, plan.total
            if self._wanted.bounded or self._wanted.everything or self._published:
                raise click.UsageError("a saved plan says which messages are meant: leave the filter out")
            plan = read_plan(self._saved, self._action)
            if plan.table != self._table:
                raise click.UsageError(f"this plan was made for {plan.table}, not for {self._table}")
            record = await store.audit(self._table, plan.id)
            if record is not None and record.finished_at is not None:
                raise NothingThere(
                    f"this plan was carried out on {shown(record.finished_at)} by {record.actor}; nothing was changed"
                )
            now = await letters.plan(_as_of(plan), published=plan.published)
            left = min(now.total, plan.total)
            if record is None and not left:
                raise NothingThere(
                    f"the plan of {shown(plan.as_of)} has gone stale: none of its {plan.total:,} messages is there any"
                    " more; nothing was changed"
                )
            return plan, left

    async def _do(self, plan: Plan, actor: str, reason: str) -> Outcome:
        async with admin_store(self._database, self._table) as store:
            letters = DeadLetters(store, self._table)
            with progress(f"{self._action.value} {self._table}", plan.total) as advance:

                def told(record: AuditRecord) -> None:
                    advance(record.changed)

                if self._action is Action.DISCARD:
                    return await letters.discard(plan, actor=actor, reason=reason, progress=told)
                return await letters.replay(plan, actor=actor, reason=reason, rate=self._rate, progress=told)

    def _show(self, plan: Plan, left: int) -> None:
        output = self._output
        columns = (Column("topic"), Column("messages", "right"))
        output.table(columns, list(plan.topics.items()), title=f"to {self._action.value} in {self._table}")
        kind = "published" if plan.published else "died"
        output.note(f"{plan.total:,} messages that {kind} from {shown(plan.oldest)} to {shown(plan.newest)}")
        if left < plan.total:
            output.note(
                f"{plan.total - left:,} of them have moved on since the plan was made and are left alone"
            )
        for each in plan.exceeded:
            window = shown(each.window)
            output.note(f"warning: {each.count:,} are older than the {window} that {each.consumer} remembers")

    def _document(self, plan: Plan, outcome: Outcome | None) -> dict[str, object]:
        return {
            "table": self._table,
            "action": self._action,
            "plan": plan.as_json(),
            "outcome": None
            if outcome is None
            else {
                "audit_id": outcome.record.id,
                "changed": outcome.changed,
                "changed_now": outcome.changed_now,
                "skipped": outcome.skipped,
                "due_until": outcome.record.paced_until,
            },
        }


def _as_of(plan: Plan) -> Filter:
    """The plan's filter without what died, or was published, after the plan was made: that is not part of it."""
    end = plan.as_of + timedelta(microseconds=1)
    return replace(plan.filter, until=min(plan.filter.until or end, end), everything=False)


def _report(output: Output, outcome: Outcome) -> None:
    record = outcome.record
    output.line(f"{_DONE[record.action]} {outcome.changed:,} messages, on record as {record.id}")
    if outcome.skipped:
        output.note(f"{outcome.skipped:,} had moved on and were left alone")
    if record.rate is not None and record.paced_until is not None:
        output.note(f"at {record.rate:g} a second the last of them is due at {shown(record.paced_until)}")
