"""Cleaning and dead letters in memory: the reference for what other stores do in one statement a step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import anyio.lowlevel

from outbox_core.letters import Action, AuditRecord, Filter, Group, GroupBy, LetterPlace, Plan
from outbox_core.record import State
from outbox_core.store import BEGINNING
from outbox_core.stores.memory.cleaning import clean, cleanable
from outbox_core.stores.memory.selection import code_of, moment_of, selected
from outbox_core.stores.memory.standing import table_status
from outbox_core.stores.memory.stored import stored

if TYPE_CHECKING:
    from outbox_core.record import StoredMessage
    from outbox_core.status import Look, TableStatus
    from outbox_core.stores.memory.database import MemoryDatabase, MemoryRow, MemoryTable
    from outbox_core.table import TableName
    from outbox_core.upkeep import Cleanable, Order, Sweep, Swept

_BATCH: Final = 500


class MemoryUpkeep:
    """`Upkeep` on a store's data. ``live`` raises when the store it belongs to is closed."""

    def __init__(self, database: MemoryDatabase, live: Callable[[], object]) -> None:
        self._database = database
        self._live = live

    async def clean_published(self, table: TableName, sweep: Sweep) -> Swept:
        memory, now = await self._step(table)
        return clean(memory, sweep, now, published=True)

    async def clean_dead(self, table: TableName, sweep: Sweep) -> Swept:
        memory, now = await self._step(table)
        return clean(memory, sweep, now, published=False)

    async def cleanable(
        self, table: TableName, *, retention: float, dead_retention: float | None, limit: int
    ) -> Cleanable:
        memory, now = await self._step(table)
        return cleanable(memory, now, retention=retention, dead_retention=dead_retention, limit=limit)

    async def status(self, table: TableName, look: Look) -> TableStatus:
        memory, now = await self._step(table)
        return table_status(table, memory, self._database.leadership(table), look, now)

    async def letters(
        self, table: TableName, wanted: Filter, *, after: LetterPlace | None, limit: int
    ) -> Sequence[StoredMessage]:
        memory, _ = await self._step(table)
        found = selected(memory, wanted, moment_of(published=False), after=after or BEGINNING)
        return [stored(row, payload=False) for row in found[:limit]]

    async def count(self, table: TableName, wanted: Filter) -> int:
        memory, _ = await self._step(table)
        return len(selected(memory, wanted, moment_of(published=False)))

    async def group(self, table: TableName, wanted: Filter, by: GroupBy, limit: int) -> Sequence[Group]:
        memory, _ = await self._step(table)
        groups: dict[str, list[datetime]] = {}
        for row in selected(memory, wanted, moment_of(published=False)):
            if row.dead_at is not None:
                groups.setdefault(_common(row, row.dead_at, by), []).append(row.dead_at)
        found = [Group(value, len(died), min(died), max(died)) for value, died in groups.items()]
        return sorted(found, key=lambda group: (-group.count, group.value))[:limit]

    async def show(self, table: TableName, event_id: UUID, *, content: bool) -> StoredMessage | None:
        memory, _ = await self._step(table)
        row = memory.rows.get(event_id)
        if row is None:
            return None
        return stored(row, payload=content)

    async def plan(
        self, table: TableName, plan_id: UUID, wanted: Filter, *, published: bool, windows: Sequence[float]
    ) -> tuple[Plan, Sequence[int]]:
        memory, now = await self._step(table)
        moment = moment_of(published=published)
        rows = selected(memory, wanted, moment)
        moments = [at for row in rows if (at := moment(row)) is not None]
        topics = Counter(row.record.topic for row in rows)
        older = [sum((now - row.created_at).total_seconds() >= window for row in rows) for window in windows]
        plan = Plan(
            id=plan_id,
            table=table,
            filter=wanted,
            published=published,
            as_of=now,
            total=len(rows),
            topics=dict(sorted(topics.items(), key=lambda item: (-item[1], item[0]))),
            oldest=min(moments, default=None),
            newest=max(moments, default=None),
        )
        return plan, older

    async def begin(self, plan: Plan, order: Order, action: str, rate: float | None) -> None:
        memory, _ = await self._step(plan.table)
        wanted = plan.filter.as_json() | ({"published": True} if plan.published else {})
        record = self._record(order, Action(action), wanted, planned=plan.total, as_of=plan.as_of, rate=rate)
        memory.audit.setdefault(plan.id, record)

    async def audit(self, table: TableName, audit_id: UUID) -> AuditRecord | None:
        memory, _ = await self._step(table)
        return memory.audit.get(audit_id)

    async def history(self, table: TableName, *, unfinished: bool, limit: int) -> Sequence[AuditRecord]:
        memory, _ = await self._step(table)
        found = [each for each in memory.audit.values() if not unfinished or each.finished_at is None]
        return sorted(found, key=lambda record: record.id, reverse=True)[:limit]

    async def advance(self, table: TableName, record: AuditRecord) -> AuditRecord | None:
        memory, now = await self._step(table)
        current = memory.audit.get(record.id)
        if current is None or current.finished_at is not None or current.batches != record.batches:
            return None
        moment = moment_of(published=record.published)
        found = selected(
            memory, record.selection, moment, after=record.cursor or BEGINNING, until=record.as_of
        )
        by_id = record.selection.event_ids is not None
        page = found if by_id else found[:_BATCH]
        last = None if not page else (moment(page[-1]) or now, page[-1].sequence)
        begins_at = max(record.paced_until or now, now)
        spacing = timedelta(seconds=0.0 if record.rate is None else 1 / record.rate)
        for place, row in enumerate(page):
            if record.action is Action.DISCARD:
                del memory.rows[row.record.event_id]
            else:
                _replay(row, begins_at + place * spacing)
        advanced = replace(
            current,
            batches=current.batches + 1,
            changed=current.changed + len(page),
            cursor=last or current.cursor,
            paced_until=begins_at + len(page) * spacing if record.action is Action.REPLAY else None,
            finished_at=now if by_id or len(page) < _BATCH else None,
        )
        memory.audit[record.id] = advanced
        if page and record.action is Action.REPLAY:
            self._database.notify(table)
        return advanced

    async def head(self, table: TableName, tenant_id: UUID, key: str) -> StoredMessage | None:
        memory, _ = await self._step(table)
        head = next((row for row in memory.of_key((tenant_id, key)) if not row.replays), None)
        return None if head is None else stored(head, payload=False)

    async def release(
        self, table: TableName, order: Order, tenant_id: UUID, key: str
    ) -> tuple[AuditRecord, UUID | None]:
        memory, now = await self._step(table)
        head = next((row for row in memory.of_key((tenant_id, key)) if not row.replays), None)
        if head is not None and head.state is State.IN_FLIGHT:
            head = None
        if head is not None and head.dead_at is not None:
            _replay(head, now)
        elif head is not None:
            head.available_at = now
        wanted = {"tenant_id": str(tenant_id), "key": key}
        record = self._done(table, order, Action.RELEASE, wanted, planned=1, changed=int(head is not None))
        return record, None if head is None else head.record.event_id

    async def postpone(
        self,
        table: TableName,
        order: Order,
        event_ids: Sequence[UUID],
        *,
        until: datetime | None,
        delay: float,
    ) -> AuditRecord:
        memory, now = await self._step(table)
        found = (memory.rows.get(event_id) for event_id in dict.fromkeys(event_ids))
        rows = [row for row in found if row is not None and row.state is State.PENDING]
        for row in rows:
            row.available_at = max(now, now + timedelta(seconds=delay) if until is None else until)
        wanted = {"event_ids": [str(each) for each in event_ids]}
        return self._done(table, order, Action.POSTPONE, wanted, planned=len(event_ids), changed=len(rows))

    async def note_resume(self, table: TableName, order: Order, record: AuditRecord) -> None:
        await self._step(table)
        self._done(table, order, record.action, {"resumes": str(record.id)}, planned=0, changed=0)

    async def note_clean(
        self, table: TableName, order: Order, wanted: Mapping[str, float], *, planned: int, changed: int
    ) -> None:
        memory, now = await self._step(table)
        record = memory.audit.get(order.id) or self._record(
            order, Action.CLEAN, dict(wanted), planned=planned
        )
        batches = record.batches + (order.id in memory.audit)
        memory.audit[order.id] = replace(record, changed=changed, batches=batches, finished_at=now)

    def _done(
        self,
        table: TableName,
        order: Order,
        action: Action,
        wanted: dict[str, Any],
        *,
        planned: int,
        changed: int,
    ) -> AuditRecord:
        """Put something on record that was done in one step."""
        record = self._record(order, action, wanted, planned=planned)
        record = replace(record, changed=changed, finished_at=record.started_at)
        self._database.table(table).audit[record.id] = record
        if changed:
            self._database.notify(table)
        return record

    def _record(
        self,
        order: Order,
        action: Action,
        wanted: dict[str, Any],
        *,
        planned: int,
        as_of: datetime | None = None,
        rate: float | None = None,
    ) -> AuditRecord:
        now = self._database.clock()
        return AuditRecord(
            id=order.id,
            action=action,
            actor=order.actor,
            reason=order.reason,
            filter=json.loads(json.dumps(wanted)),
            as_of=as_of or now,
            planned=planned,
            changed=0,
            rate=rate,
            batches=0,
            cursor=None,
            paced_until=None,
            started_at=now,
            finished_at=None,
        )

    async def _step(self, table: TableName) -> tuple[MemoryTable, datetime]:
        """The only wait of a step, before anything is done: a cancelled step has not happened."""
        await anyio.lowlevel.checkpoint()
        self._live()
        return self._database.table(table), self._database.clock()


def _replay(row: MemoryRow, due: datetime) -> None:
    row.dead_at = row.published_at = row.last_error = None
    row.attempts = 0
    row.replays += 1
    row.available_at = due


def _common(row: MemoryRow, died: datetime, by: GroupBy) -> str:
    match by:
        case GroupBy.CODE:
            return code_of(row)
        case GroupBy.TOPIC:
            return row.record.topic
        case GroupBy.TENANT:
            return str(row.record.tenant_id)
        case GroupBy.HOUR:
            return f"{died.astimezone(UTC):%Y-%m-%dT%H:00Z}"
