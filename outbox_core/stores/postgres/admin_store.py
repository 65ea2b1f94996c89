"""Cleaning and dead letters in PostgreSQL: one statement a step, bounded, counted and recorded in that same step."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import asyncpg

from outbox_core.admin_store import Attribution, Cleanable, CleanedBatch, CleaningBatch
from outbox_core.letters import Action, AuditRecord, Filter, Group, GroupBy, LetterPlace, Plan
from outbox_core.record import State, StoredMessage
from outbox_core.status import RECENTLY, Count, Look, TableStatus
from outbox_core.store import BEGINNING
from outbox_core.stores.postgres.advisory import lock_key
from outbox_core.stores.postgres.readiness import check_schema
from outbox_core.stores.postgres.schema.verification import require
from outbox_core.stores.postgres.sessions import Sessions
from outbox_core.stores.postgres.sql import query
from outbox_core.stores.postgres.standing import table_status
from outbox_core.stores.postgres.translation import translated
from outbox_core.table import TableName

_TIMEOUT_SECONDS: Final = 30.0
_AUDIT_COLUMNS: Final = 15
_LETTER_COLUMNS: Final = 14
_ADVANCE: Final = {
    (Action.REPLAY, False): "replay_dead",
    (Action.REPLAY, True): "replay_published",
    (Action.DISCARD, False): "discard",
}
_EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)


class PostgresAdminStore:
    """`AdminStore` on a store's sessions; `connect` opens sessions for it alone."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        dsn: str,
        *tables: str | TableName,
        timeout: float = _TIMEOUT_SECONDS,
        connect: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[PostgresAdminStore]:
        """Sessions of its own, at most two, and no statement longer than ``timeout`` seconds.

        The schema of the ``tables`` is checked first, so that an error comes with the command that fixes it.
        ``connect`` is passed to ``asyncpg.connect``.
        """
        sessions = Sessions(dsn, name="outbox:upkeep", size=2, timeout=timeout, connect=connect)
        try:
            await sessions.detect()
            if tables:
                await check_schema(sessions, map(TableName.parse, tables), require)
            yield cls(sessions)
        finally:
            await sessions.close()

    async def clean_published(self, table: TableName, batch: CleaningBatch) -> CleanedBatch:
        return await self._clean(table, "clean_published", batch)

    async def clean_dead(self, table: TableName, batch: CleaningBatch) -> CleanedBatch:
        return await self._clean(table, "clean_dead", batch)

    async def status(self, table: TableName, look: Look) -> TableStatus:
        rows = await self._fetch(table, "status", "look at", look.limit, look.depth, RECENTLY)
        return table_status(table, look, rows[0])

    async def cleanable(
        self, table: TableName, *, retention: float, dead_retention: float | None, limit: int
    ) -> Cleanable:
        rows = await self._fetch(table, "cleanable", "clean", retention, dead_retention, limit + 1)
        published, dead, oldest = rows[0]
        return Cleanable(Count.up_to(limit, published), Count.up_to(limit, dead), oldest)

    async def letters(
        self, table: TableName, wanted: Filter, *, after: LetterPlace | None, limit: int
    ) -> Sequence[StoredMessage]:
        place = BEGINNING if after is None else after
        rows = await self._fetch(table, "letter_list", "list", *_conditions(wanted), *place, limit)
        return [_message(row) for row in rows]

    async def count(self, table: TableName, wanted: Filter) -> int:
        rows = await self._fetch(table, "letter_count", "count", *_conditions(wanted))
        count: int = rows[0][0]
        return count

    async def group(self, table: TableName, wanted: Filter, by: GroupBy, limit: int) -> Sequence[Group]:
        rows = await self._fetch(table, "letter_group", "count", *_conditions(wanted), by.value, limit)
        return [Group(*row) for row in rows]

    async def show(self, table: TableName, event_id: UUID, *, content: bool) -> StoredMessage | None:
        statement, action = ("letter_content", "read the content of") if content else ("letter_show", "read")
        rows = await self._fetch(table, statement, action, event_id)
        if not rows:
            return None
        message = _message(rows[0][:_LETTER_COLUMNS])
        if not content:
            return message
        headers, payload = rows[0][_LETTER_COLUMNS:]
        read = None if headers is None else MappingProxyType[str, str](json.loads(headers))
        return replace(message, headers=read, payload=payload)

    async def plan(
        self, table: TableName, plan_id: UUID, wanted: Filter, *, published: bool, windows: Sequence[float]
    ) -> tuple[Plan, Sequence[int]]:
        statement = "letter_plan_published" if published else "letter_plan_dead"
        rows = await self._fetch(table, statement, "plan", *_conditions(wanted), list(windows))
        topics: dict[str, int] = {}
        older = [0] * len(windows)
        for _, topic, exceeded, count, _, _ in rows:
            if count:
                topics[topic] = topics.get(topic, 0) + count
                for window in range(exceeded):
                    older[window] += count
        plan = Plan(
            id=plan_id,
            table=table,
            filter=wanted,
            published=published,
            as_of=rows[0][0],
            total=sum(topics.values()),
            topics=dict(sorted(topics.items(), key=lambda item: (-item[1], item[0]))),
            oldest=min((row[4] for row in rows if row[3]), default=None),
            newest=max((row[5] for row in rows if row[3]), default=None),
        )
        return plan, older

    async def begin(self, plan: Plan, by: Attribution, action: str, rate: float | None) -> None:
        record = plan.filter.as_json() | ({"published": True} if plan.published else {})
        await self._fetch(
            plan.table, "audit_begin", action,
            plan.id, action, by.actor, by.reason, json.dumps(record), plan.as_of, plan.total, rate,
        )  # fmt: skip

    async def audit(self, table: TableName, audit_id: UUID) -> AuditRecord | None:
        rows = await self._fetch(table, "audit_get", "read the audit of", audit_id)
        return _record(rows[0]) if rows else None

    async def history(self, table: TableName, *, unfinished: bool, limit: int) -> Sequence[AuditRecord]:
        rows = await self._fetch(table, "audit_list", "read the audit of", unfinished, limit)
        return [_record(row) for row in rows]

    async def advance(self, table: TableName, record: AuditRecord) -> AuditRecord | None:
        place = BEGINNING if record.cursor is None else record.cursor
        parameters: list[object] = [
            *_conditions(record.selection), record.as_of, record.id, record.batches, *place,
        ]  # fmt: skip
        if record.action is Action.REPLAY:
            spacing = 0.0 if record.rate is None else 1 / record.rate
            parameters += [record.paced_until or _EARLIEST, spacing, str(table)]
        statement = _ADVANCE[record.action, record.published]
        rows = await self._fetch(table, statement, record.action.value, *parameters)
        return _record(rows[0]) if rows else None

    async def head(self, table: TableName, tenant_id: UUID, key: str) -> StoredMessage | None:
        rows = await self._fetch(table, "letter_head", "read", tenant_id, key)
        return _message(rows[0]) if rows else None

    async def release(
        self, table: TableName, by: Attribution, tenant_id: UUID, key: str
    ) -> tuple[AuditRecord, UUID | None]:
        wanted = json.dumps({"tenant_id": str(tenant_id), "key": key})
        rows = await self._fetch(
            table, "release_head", "release",
            tenant_id, key, by.id, by.actor, by.reason, wanted, str(table),
        )  # fmt: skip
        return _record(rows[0]), rows[0][_AUDIT_COLUMNS]

    async def postpone(
        self,
        table: TableName,
        by: Attribution,
        event_ids: Sequence[UUID],
        *,
        until: datetime | None,
        delay: float,
    ) -> AuditRecord:
        wanted = json.dumps({"event_ids": [str(each) for each in event_ids]})
        rows = await self._fetch(
            table, "postpone", "postpone",
            list(event_ids), until, delay, by.id, by.actor, by.reason, wanted, len(event_ids), str(table),
        )  # fmt: skip
        return _record(rows[0])

    async def note_resume(self, table: TableName, by: Attribution, record: AuditRecord) -> None:
        action, wanted = record.action.value, json.dumps({"resumes": str(record.id)})
        await self._fetch(table, "audit_resume", action, by.id, action, by.actor, by.reason, wanted)

    async def note_clean(
        self, table: TableName, by: Attribution, wanted: Mapping[str, float], *, planned: int, changed: int
    ) -> None:
        record = json.dumps(dict(wanted))
        await self._fetch(table, "audit_clean", "clean", by.id, by.actor, by.reason, record, planned, changed)

    async def _clean(self, table: TableName, statement: str, batch: CleaningBatch) -> CleanedBatch:
        lock = lock_key(f"outbox-cleaner:{table}")
        rows = await self._fetch(table, statement, "clean", lock, *batch.since, batch.older_than, batch.limit)
        ours, seen, deleted, moment, sequence = rows[0]
        last = None if moment is None else (moment, sequence)
        return CleanedBatch(busy=not ours, deleted=deleted, last=last, complete=ours and seen < batch.limit)

    async def _fetch(self, table: TableName, statement: str, action: str, *parameters: object) -> list[Any]:
        try:
            return await self._sessions.fetch(query(statement, table), *parameters)
        except asyncpg.PostgresError as error:
            raise translated(error, table, action) from error


def _conditions(wanted: Filter) -> tuple[object, ...]:
    """A filter as the parameters $1 to $6 of every statement that takes one."""
    ids = None if wanted.event_ids is None else list(wanted.event_ids)
    return (wanted.topic_expression, wanted.tenant_id, wanted.code, ids, wanted.since, wanted.until)


def _message(row: Sequence[Any]) -> StoredMessage:
    (sequence, event_id, tenant_id, topic, key, state, attempts, replays, created_at, available_at,
     published_at, dead_at, last_error, content_type) = row  # fmt: skip
    return StoredMessage(
        sequence=sequence,
        event_id=event_id,
        tenant_id=tenant_id,
        topic=topic,
        key=key,
        state=State(state),
        attempts=attempts,
        replays=replays,
        created_at=created_at,
        available_at=available_at,
        published_at=published_at,
        dead_at=dead_at,
        last_error=last_error,
        headers=None,
        payload=None,
        content_type=content_type,
    )


def _record(row: Sequence[Any]) -> AuditRecord:
    (audit_id, action, actor, reason, wanted, as_of, planned, changed, rate, batches, cursor_at,
     cursor_sequence, paced_until, started_at, finished_at) = row[:_AUDIT_COLUMNS]  # fmt: skip
    return AuditRecord(
        id=audit_id,
        action=Action(action),
        actor=actor,
        reason=reason,
        filter=json.loads(wanted),
        as_of=as_of,
        planned=planned,
        changed=changed,
        rate=rate,
        batches=batches,
        cursor=None if cursor_at is None else (cursor_at, cursor_sequence),
        paced_until=paced_until,
        started_at=started_at,
        finished_at=finished_at,
    )
