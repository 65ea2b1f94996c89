"""The in-memory store, the reference of the contract: a step is atomic because it awaits nothing while it runs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from outbox_core.errors import ConfigError, StorageUnavailable
from outbox_core.headers import NO_HEADERS
from outbox_core.meta import DispatchedMessage, Meta
from outbox_core.store import (
    LAST_SEQUENCE,
    Capabilities,
    Claim,
    Failure,
    KeyId,
    KeyRequest,
    KeySpan,
    Lease,
    Leased,
    LeasedRow,
    Position,
    Predecessor,
    Resolution,
    RowId,
    Tick,
    View,
)
from outbox_core.stores.memory.admin_store import MemoryAdminStore
from outbox_core.stores.memory.database import MemoryDatabase, MemoryRow, MemoryTable
from outbox_core.stores.memory.election import MemoryElection
from outbox_core.stores.memory.transaction import MemoryTransaction

if TYPE_CHECKING:
    from outbox_core.table import TableName


_CAPABILITIES: Final = Capabilities(
    session_locks=True, wakeups="push", transaction_start_time=True, advisory_key_locks=True
)


def _now() -> datetime:
    return datetime.now(UTC)


class MemoryStore:
    """Any number of tables; they appear when first used.

    ``clock`` gives the time, for tests that move it. ``on_hint`` is called with a table's name when a transaction that
    carried a wake-up hint for it commits. A leader that has been silent for ``takeover`` seconds is replaced.

    One relay at a time works on a store; for more of them on the same data, give each a store of its own: `connect`.
    """

    def __init__(
        self,
        clock: Callable[[], datetime] = _now,
        on_hint: Callable[[TableName], None] | None = None,
        *,
        takeover: float = 8.0,
        database: MemoryDatabase | None = None,
    ) -> None:
        if takeover <= 0:
            raise ConfigError(f"takeover must be greater than 0, got {takeover!r}")
        self.database = MemoryDatabase(clock) if database is None else database
        self._takeover = timedelta(seconds=takeover)
        self._session: object | None = object()
        self.admin_store = MemoryAdminStore(self.database, self._live)
        """Cleaning and dead letters, on the same data."""
        if on_hint is not None:
            self.database.listeners[on_hint] = lambda table: None if table is None else on_hint(table)

    def connect(self) -> MemoryStore:
        """Another client of the same data, with a session of its own: what a second process would have."""
        return MemoryStore(takeover=self._takeover.total_seconds(), database=self.database)

    def table(self, name: TableName) -> MemoryTable:
        """The rows of a table, for a test to read."""
        return self.database.table(name)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[MemoryTransaction]:
        """Begin; commit at the end of the block, or roll back when it raises. Needs no open session."""
        tx = MemoryTransaction(self)
        try:
            yield tx
        except BaseException:
            tx.end(commit=False)
            raise
        tx.end(commit=True)

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def open(self, tables: Sequence[TableName]) -> None:
        await anyio.lowlevel.checkpoint()
        if self._session is None:
            self._session = object()
        for table in tables:
            self.database.table(table)

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self.database.end_session(session)

    def election(self, table: TableName) -> MemoryElection:
        return MemoryElection(table, self.database, self._takeover, self._live)

    def listen(self, tables: Collection[TableName], callback: Callable[[TableName | None], None]) -> None:
        wanted = frozenset(tables)

        def hear(table: TableName | None) -> None:
            if table is None or table in wanted:
                callback(table)

        self.database.listeners[self._live()] = hear

    async def keep_listening(self) -> None:
        await anyio.lowlevel.checkpoint()
        self._live()

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        memory, now = await self._step(table)
        if claim.term is not None and claim.term != self.database.leadership(table).term:
            return Leased.of([], {})
        ttl, held, blocked = (
            timedelta(seconds=claim.lock_ttl),
            set(claim.held_keys),
            set(claim.blocked_topics),
        )
        due = [
            row
            for row in memory.rows.values()
            if row.published_at is None
            and row.is_due(now, ttl)
            and claim.since <= (row.available_at, row.sequence) <= claim.until
            and row.key_id not in held
            and row.record.topic not in blocked
        ]
        due.sort(key=_position)
        return _leased(
            table, memory, claim, due[: claim.limit], now, find_predecessors=claim.find_predecessors
        )

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        memory, now = await self._step(table)
        if claim.term != self.database.leadership(table).term:
            return Leased.of([], {})
        ttl = timedelta(seconds=claim.lock_ttl)
        due: list[MemoryRow] = []
        for key_id, wanted, after in keys:
            # A replayed row holds up no other: while it waits it is not one of the requested rows.
            rows = [row for row in memory.of_key(key_id) if row.dead_at is None and row.sequence > after]
            heads = [row for row in rows if not row.replays or row.is_due(now, ttl)][:wanted]
            due.extend(row for row in heads if row.is_due(now, ttl))
        after_of = {key_id: after for key_id, _, after in keys}
        return _leased(table, memory, claim, due, now, find_predecessors=True, after_of=after_of)

    async def undo_claim(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> int:
        del keys  # every row is searched anyway
        memory, _ = await self._step(table)
        rows = memory.leased(claim.token)
        for row in rows:
            row.unlock()
            row.attempts -= 1
        return len(rows)

    async def predecessors(
        self, table: TableName, spans: Sequence[KeySpan], view: View
    ) -> dict[KeyId, Predecessor]:
        memory, now = await self._step(table)
        return _predecessors(memory, spans, view, now)

    async def read_content(self, table: TableName, row_id: RowId) -> None:
        del row_id  # what is in memory can be read
        await self._step(table)

    async def position_after(self, table: TableName, since: Position, rows: int) -> Position | None:
        memory, now = await self._step(table)
        positions = sorted(
            _position(row)
            for row in memory.rows.values()
            if row.published_at is None and row.dead_at is None and row.available_at <= now
        )
        return next(iter([each for each in positions if each >= since][rows:]), None)

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        memory, now = await self._step(table)
        rows = _held(memory, leases)
        for row in rows.values():
            row.unlock()
            row.published_at, row.last_error = now, None
            if delete:
                del memory.rows[row.record.event_id]
        return set(leases) - rows.keys()

    async def fail(self, table: TableName, failures: Sequence[Failure]) -> set[Lease]:
        memory, now = await self._step(table)
        leases = [(failure.id, failure.token) for failure in failures]
        rows = _held(memory, leases)
        for failure, lease in zip(failures, leases, strict=True):
            row = rows.get(lease)
            if row is None:
                continue
            row.unlock()
            row.last_error = failure.error
            row.attempts -= failure.refund
            if failure.dead:
                row.dead_at = now
            else:
                row.available_at = now + timedelta(seconds=failure.delay)
        return set(leases) - rows.keys()

    async def release(self, table: TableName, leases: Sequence[Lease], *, restamp: bool) -> set[Lease]:
        memory, now = await self._step(table)
        rows = _held(memory, leases)
        for row in rows.values():
            row.unlock()
            row.attempts -= 1
            if restamp:
                row.available_at = now
        return set(leases) - rows.keys()

    async def resolutions(self, table: TableName, ids: Collection[RowId]) -> dict[RowId, Resolution]:
        memory, _ = await self._step(table)
        return {
            row.id: Resolution(row.published_at is not None, row.attempts, row.replays, row.last_error)
            for row in memory.rows.values()
            if row.id in ids and (row.published_at is not None or row.dead_at is not None)
        }

    async def locked_rows(self, table: TableName, ids: Collection[RowId]) -> set[RowId]:
        del ids  # no session locks a row here
        await self._step(table)
        return set()

    async def tick(self, table: TableName) -> Tick:
        _, now = await self._step(table)
        running = frozenset(self.database.running)
        return Tick(now, uncommitted=running, writers=running)

    async def end_stuck_sessions(self, table: TableName, older_than: float) -> list[int]:
        del older_than  # no session here can stand still half-way
        await self._step(table)
        return []

    async def _step(self, table: TableName) -> tuple[MemoryTable, datetime]:
        """The only wait of a step, before anything is done: a cancelled step has not happened."""
        await anyio.lowlevel.checkpoint()
        self._live()
        return self.database.table(table), self.database.clock()

    def _live(self) -> object:
        if self._session is None:
            raise StorageUnavailable("the in-memory store is closed; open() it again")
        return self._session


def _position(row: MemoryRow) -> tuple[datetime, int]:
    return (row.available_at, row.sequence)


def _sequence(row: MemoryRow) -> int:
    return row.sequence


def _wait(row: MemoryRow, now: datetime, lock_ttl: timedelta) -> float | None:
    if row.dead_at is not None:
        return None
    free_at = now if row.locked_at is None else row.locked_at + lock_ttl
    return (max(row.available_at, free_at, now) - now).total_seconds()


def _held(memory: MemoryTable, leases: Collection[Lease]) -> dict[Lease, MemoryRow]:
    """The rows whose lease still has the token it is asserted to have."""
    held: dict[Lease, MemoryRow] = {
        (row.id, row.lock_token): row for row in memory.rows.values() if row.lock_token is not None
    }
    return {lease: held[lease] for lease in leases if lease in held}


def _leased(
    table: TableName,
    memory: MemoryTable,
    claim: Claim,
    due: Sequence[MemoryRow],
    now: datetime,
    *,
    find_predecessors: bool,
    after_of: Mapping[KeyId, int] | None = None,
) -> Leased:
    """Lease rows, in the order given, until their payloads fill the claim; returned in the order of their positions.
    Predecessors are searched above the sequences ``after_of`` their keys."""
    taken: list[MemoryRow] = []
    size = 0
    for row in due:
        if size >= claim.max_bytes:
            break
        size += 0 if claim.without_content else len(_payload(row))
        row.lease(claim.token, now)
        taken.append(row)
    taken.sort(key=_position)
    last = {row.key_id: row.sequence for row in sorted(taken, key=_sequence) if row.key_id is not None}
    after_of = after_of or {}
    spans = [KeySpan(key_id, after_of.get(key_id, 0), before) for key_id, before in last.items()]
    found = None
    if find_predecessors and claim.term is not None:
        found = _predecessors(memory, spans, claim.view, now)
    return Leased.of([_row(table, claim, row) for row in taken], found)


def _predecessors(
    memory: MemoryTable, spans: Sequence[KeySpan], view: View, now: datetime
) -> dict[KeyId, Predecessor]:
    ttl = timedelta(seconds=view.lock_ttl)
    found: dict[KeyId, Predecessor] = {}
    own = set(view.own_tokens)
    for span in spans:
        for row in memory.of_key(span.key_id):
            if (
                row.sequence < span.before
                and (row.sequence > span.after or row.dead_at is not None)
                and (row.lock_token not in own or row.id in view.unordered_ids)
                and (not row.replays or (span.before == LAST_SEQUENCE and row.is_due(now, ttl)))
                and (view.dead_hold_keys or row.dead_at is None)
            ):
                wait = 0.0 if row.id in view.unordered_ids else _wait(row, now, ttl)
                found[span.key_id] = Predecessor(row.sequence, wait)
                break
    return found


def _payload(row: MemoryRow) -> bytes:
    record = row.record
    return record.payload.encode() if record.payload is not None else record.body or b""


def _row(table: TableName, claim: Claim, row: MemoryRow) -> LeasedRow:
    record = row.record
    meta = Meta(
        table=str(table),
        tenant_id=record.tenant_id,
        topic=record.topic,
        event_id=record.event_id,
        sequence=row.sequence,
        attempts=row.attempts,
        replays=row.replays,
        key=record.key,
        headers=NO_HEADERS if record.headers is None else json.loads(record.headers),
        created_at=row.created_at,
        traceparent=record.traceparent,
        tracestate=record.tracestate,
    )
    payload = b"" if claim.without_content else _payload(row)
    message = DispatchedMessage(meta, payload, record.content_type or "application/json")
    return LeasedRow(row.id, claim.token, message, row.available_at.timestamp(), row.key_id, row.is_recovered)
