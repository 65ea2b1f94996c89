"""`DeadLetters`: what operators can see of dead messages, and do about them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from outbox_core.admin_store import AdminStore, Attribution, HasAdminStore
from outbox_core.dead_letters.course import Progress, carry_out, recorded
from outbox_core.errors import ConfigError, PlanMismatch, UnboundedFilter
from outbox_core.identifiers import uuid7
from outbox_core.letters import (
    MAX_EVENT_IDS,
    MAX_RATE,
    MIN_RATE,
    Action,
    AuditRecord,
    ExceededWindow,
    Filter,
    Group,
    GroupBy,
    LetterPlace,
    Page,
    Plan,
)
from outbox_core.observer import Discarded, Observer, Replayed, tell
from outbox_core.table import TableName

if TYPE_CHECKING:
    from outbox_core.dead_letters.outcome import Outcome
    from outbox_core.record import StoredMessage

_MAX_PAGE: Final = 1000
_NIL: Final = UUID(int=0)
_logger: Final = logging.getLogger("outbox_core.dead_letters")


class DeadLetters:
    """The dead letters of one table.

    Whatever changes messages is put on record in ``<table>_audit``: who (``actor``), when, why (``reason``), which, and
    how many. Payloads and headers are read by `show` alone, and only when asked for.

    ``dedupe_windows`` says for how long each consumer remembers what it has seen, so that a plan can warn of messages
    that a consumer would take for new ones.
    """

    def __init__(
        self,
        store: AdminStore | HasAdminStore,
        table: str | TableName,
        *,
        dedupe_windows: Mapping[str, timedelta] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.table = TableName.parse(table)
        self._admin_store: AdminStore = store.admin_store if isinstance(store, HasAdminStore) else store
        windows = dict(dedupe_windows or {})
        self._windows = sorted(windows.items(), key=lambda item: item[1])
        self._observers = observers

    async def count(self, wanted: Filter | None = None) -> int:
        """Count dead letters."""
        return await self._admin_store.count(self.table, wanted or Filter())

    async def list(
        self, wanted: Filter | None = None, *, after: LetterPlace | None = None, limit: int = 100
    ) -> Page:
        """A page of at most ``limit`` dead letters, oldest death first; ``after`` is the last page's ``next``."""
        if not 0 < limit <= _MAX_PAGE:
            raise ConfigError(f"limit must be 1 to {_MAX_PAGE}, got {limit!r}")
        found = await self._admin_store.letters(self.table, wanted or Filter(), after=after, limit=limit + 1)
        shown = found[:limit]
        last = shown[-1] if len(found) > limit else None
        following = None if last is None or last.dead_at is None else (last.dead_at, last.sequence)
        return Page(tuple(shown), following)

    async def group(
        self, by: GroupBy | str, wanted: Filter | None = None, *, limit: int = 100
    ) -> Sequence[Group]:
        """Dead letters counted by ``code``, ``topic``, ``tenant`` or ``hour``, the most frequent first."""
        if by not in tuple(GroupBy):
            raise ConfigError(f"dead letters are grouped by {', '.join(GroupBy)}; got {by!r}")
        return await self._admin_store.group(self.table, wanted or Filter(), GroupBy(by), limit)

    async def show(self, event_id: UUID, *, payload: bool = False) -> StoredMessage | None:
        """One message, dead or not; with its payload and headers only when ``payload`` is set."""
        return await self._admin_store.show(self.table, event_id, content=payload)

    async def plan(self, wanted: Filter, *, published: bool = False) -> Plan:
        """Plan a replay or discard: count what it would change now. Changes nothing.

        With ``published`` the plan is to replay messages that have been delivered and are still in the table.
        """
        if not wanted.bounded and not wanted.everything:
            raise UnboundedFilter
        if published and wanted.code is not None:
            raise ConfigError("published messages have no error code; leave code out of the filter")
        plan, older = await self._admin_store.plan(
            self.table,
            uuid7(),
            wanted,
            published=published,
            windows=[window.total_seconds() for _, window in self._windows],
        )
        exceeded = [
            ExceededWindow(consumer, window, count)
            for (consumer, window), count in zip(self._windows, older, strict=True)
            if count
        ]
        return replace(plan, exceeded=tuple(exceeded))

    async def replay(
        self,
        plan: Plan,
        *,
        actor: str,
        reason: str,
        rate: float | None = None,
        progress: Progress | None = None,
    ) -> Outcome:
        """Have the planned messages delivered once more, each at most once for this plan.

        Attempts, error and death are reset, ``replays`` is counted up, ``id`` and ``event_id`` stay. ``rate`` spreads
        the messages over time, so many a second, 0.001 to 1,000,000. A replayed message does not hold its key: those
        behind it may overtake it. What has moved on since the plan was made is left alone and counted as skipped.
        Giving the same plan again goes on where a crash left it, with the actor, reason and rate of the first time.
        """
        if rate is not None and not MIN_RATE <= rate <= MAX_RATE:
            raise ConfigError(f"rate must be {MIN_RATE:g} to {MAX_RATE:,} messages a second, got {rate!r}")
        return await self._carry_out(
            plan, Action.REPLAY, _attribution(plan.id, actor, reason), rate, progress
        )

    async def discard(
        self, plan: Plan, *, actor: str, reason: str, progress: Progress | None = None
    ) -> Outcome:
        """Delete the planned dead letters for good; otherwise as `replay`. A key that one of them blocked goes on."""
        if plan.published:
            raise PlanMismatch("published messages are not discarded; the cleaner deletes them in time")
        return await self._carry_out(
            plan, Action.DISCARD, _attribution(plan.id, actor, reason), None, progress
        )

    async def resume(
        self,
        audit_id: UUID,
        *,
        actor: str | None = None,
        reason: str | None = None,
        progress: Progress | None = None,
    ) -> Outcome:
        """Go on with a replay or discard whose process has ended, as it is on record; see ``history(unfinished=True)``.

        With ``actor`` and ``reason``, who went on and why is put on record too, in a record of its own whose filter is
        ``{"resumes": audit_id}``; the first record keeps its own and counts what is changed. Safe while the first
        process is still at it: the two share the work.
        """
        if (actor is None) != (reason is None):
            raise ConfigError("give actor and reason together, or neither")
        by = None if actor is None or reason is None else _attribution(uuid7(), actor, reason)
        record = await recorded(self._admin_store, self.table, audit_id)
        if by is not None and record.finished_at is None:
            await self._admin_store.note_resume(self.table, by, record)
        return await self._course(record, progress)

    async def history(self, *, unfinished: bool = False, limit: int = 100) -> Sequence[AuditRecord]:
        """List what was done to messages of this table, newest first."""
        return await self._admin_store.history(self.table, unfinished=unfinished, limit=limit)

    async def head(self, key: str, *, tenant_id: UUID = _NIL) -> StoredMessage | None:
        """The message that `release` would let go: the first of its key that is neither published nor replayed."""
        return await self._admin_store.head(self.table, tenant_id, key)

    async def release(
        self, key: str, *, actor: str, reason: str, tenant_id: UUID = _NIL
    ) -> StoredMessage | None:
        """Let the message at the head of a key go: replayed if it is dead, due now if it waits; None if it is in flight
        or there is none.

        Its followers then go on without waiting for it (a replayed message) or right after it (a waiting one).
        """
        by = _attribution(uuid7(), actor, reason)
        record, event_id = await self._admin_store.release(self.table, by, tenant_id, key)
        if event_id is None or not record.changed:
            return None
        return await self._admin_store.show(self.table, event_id, content=False)

    async def postpone(
        self,
        event_ids: Sequence[UUID],
        *,
        actor: str,
        reason: str,
        until: datetime | None = None,
        delay: timedelta | None = None,
    ) -> AuditRecord:
        """Set when pending messages are due: at a moment or after a delay from now; both may also bring them forward.

        Messages in flight, published or dead are left alone and counted as skipped.
        """
        if (until is None) == (delay is None):
            raise ConfigError("give either until or delay")
        if until is not None and until.tzinfo is None:
            raise ConfigError(f"until must have a time zone, got the naive {until.isoformat()}")
        if not 0 < len(event_ids) <= MAX_EVENT_IDS:
            raise ConfigError(f"event_ids must be 1 to {MAX_EVENT_IDS} ids, got {len(event_ids)}")
        seconds = 0.0 if delay is None else delay.total_seconds()
        by = _attribution(uuid7(), actor, reason)
        return await self._admin_store.postpone(self.table, by, event_ids, until=until, delay=seconds)

    async def _carry_out(
        self, plan: Plan, action: Action, by: Attribution, rate: float | None, progress: Progress | None
    ) -> Outcome:
        if plan.table != self.table:
            raise PlanMismatch(f"this plan was made for {plan.table}, not for {self.table}")
        await self._admin_store.begin(plan, by, action.value, rate)
        record = await recorded(self._admin_store, self.table, plan.id)
        if record.action is not action:
            raise PlanMismatch(
                f"this plan was begun as a {record.action.value} on {record.started_at:%Y-%m-%d %H:%M:%S %Z}"
                f" by {record.actor}; make a new plan to {action.value}"
            )
        return await self._course(record, progress)

    async def _course(self, record: AuditRecord, progress: Progress | None) -> Outcome:
        seen = [record]

        def noted(now: AuditRecord) -> None:
            seen[0] = now
            if progress is not None:
                progress(now)

        try:
            return await carry_out(self._admin_store, self.table, record, noted)
        finally:
            self._tell(seen[0], seen[0].changed - record.changed)

    def _tell(self, record: AuditRecord, rows: int) -> None:
        kind = Discarded if record.action is Action.DISCARD else Replayed
        if rows:
            tell(self._observers, kind(self.table, rows, record.actor, record.id), _logger)


def _attribution(audit_id: UUID, actor: str, reason: str) -> Attribution:
    for name, value in (("actor", actor), ("reason", reason)):
        if not value.strip() or "\0" in value:
            raise ConfigError(f"{name} must say something, for the record; got {value!r}")
    return Attribution(audit_id, actor, reason)
