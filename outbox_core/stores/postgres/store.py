"""The PostgreSQL store: one statement a step, and every write fenced by its lease's token."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import asyncpg

from outbox_core.errors import PermissionDenied
from outbox_core.store import (
    Capabilities,
    Claim,
    Failure,
    KeyId,
    KeyRequest,
    KeySpan,
    Lease,
    Leased,
    Position,
    Predecessor,
    Resolution,
    RowId,
    Tick,
    View,
)
from outbox_core.stores.postgres.admin_store import PostgresAdminStore
from outbox_core.stores.postgres.control import Control, PostgresElection
from outbox_core.stores.postgres.readiness import check_schema
from outbox_core.stores.postgres.rows import leased
from outbox_core.stores.postgres.schema.verification import require, require_leader
from outbox_core.stores.postgres.sessions import Sessions
from outbox_core.stores.postgres.sql import query
from outbox_core.stores.postgres.translation import translated

if TYPE_CHECKING:
    from outbox_core.table import TableName

_UNDO_ROWS: Final = 10
"""Undoing a claim searches this many times the rows that it asked for."""
_LEAST_UNDO_ROWS: Final = 5_000
"""The least it searches: as many rows may be in flight before those of a small claim."""


class PostgresStore:
    """Messages in PostgreSQL, for any number of tables, on ``size`` sessions and one more for control.

    ``connect`` is passed to ``asyncpg.connect`` untouched: TLS contexts, passwords, hosts. ``timeout`` bounds every
    statement, and a leader that has been silent for ``takeover`` seconds is replaced. Without ``elections`` the leader
    table needs no row.
    """

    def __init__(
        self,
        dsn: str,
        *,
        timeout: float = 5.0,
        takeover: float = 8.0,
        elections: bool = True,
        size: int = 3,
        name: str = "outbox:relay",
        connect: Mapping[str, Any] | None = None,
    ) -> None:
        self._sessions = Sessions(dsn, name=name, size=size, timeout=timeout, connect=connect)
        self._control = Control(self._sessions, timeout=timeout, takeover=takeover)
        self._takeover = takeover
        self._elections = elections
        self.admin_store = PostgresAdminStore(self._sessions)
        """Cleaning and dead letters, on the same sessions."""

    @property
    def capabilities(self) -> Capabilities:
        pooled = self._sessions.pooled
        return Capabilities(
            pooled=pooled,
            session_locks=not pooled,
            wakeups="poll" if pooled else "push",
            transaction_start_time=True,
            advisory_key_locks=True,
        )

    async def open(self, tables: Sequence[TableName]) -> None:
        self._sessions.plan_once()
        await self._sessions.detect()
        await check_schema(self._sessions, tables, self._check_schema)
        for table in tables:
            await self._check_rights(table)
        self._sessions.started()

    async def _check_schema(self, connection: asyncpg.Connection, table: TableName) -> None:
        await require(connection, table)
        await require_leader(connection, table, row=self._elections)

    async def _check_rights(self, table: TableName) -> None:
        """Check the grants in the catalog, then run each statement that can run on no rows: a missing right shows now,
        not at the first failure."""
        missing = await self._fetch(table, "missing_grants", "look at", table.schema, table.name)
        if missing:
            raise PermissionDenied(table, "deliver messages of", [grant for (grant,) in missing])
        nothing = Claim(token=uuid4(), term=-1, limit=0, max_bytes=0, lock_ttl=0.0)
        await self.claim(table, nothing)
        await self.publish(table, (), delete=False)
        await self.publish(table, (), delete=True)
        await self.fail(table, ())
        await self.release(table, (), restamp=True)
        await self._fetch(table, "heartbeat", "lead", nothing.term)

    async def close(self) -> None:
        try:
            await self._control.close()
            await self._sessions.close()
        finally:
            self.abort()

    def abort(self) -> None:
        self._control.abort()
        self._sessions.abort()

    def election(self, table: TableName) -> PostgresElection:
        return PostgresElection(table, self._control, self._sessions, self._takeover)

    def listen(self, tables: Collection[TableName], callback: Callable[[TableName | None], None]) -> None:
        self._control.listen(tables, callback)

    async def keep_listening(self) -> None:
        if not self._sessions.pooled:
            await self._control.fetch("SELECT 1")

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        tenants, keys = _columns(claim.held_keys, 2)
        found = await self._fetch(
            table,
            "claim",
            "claim",
            *_terms(claim),
            *claim.since,
            tenants,
            keys,
            list(claim.blocked_topics),
            claim.limit,
            claim.without_content,
            *claim.until,
            claim.find_predecessors,
        )
        return leased(table, claim, found, searched=claim.find_predecessors)

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        tenants, names = _columns([request.key_id for request in keys], 2)
        found = await self._fetch(
            table, "claim_keys", "claim", *_terms(claim), tenants, names,
            [request.rows for request in keys], claim.without_content, [request.after for request in keys],
        )  # fmt: skip
        return leased(table, claim, found, searched=True)

    async def undo_claim(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> int:
        if keys:
            tenants, names = _columns([request.key_id for request in keys], 2)
            wanted = [_UNDO_ROWS * request.rows for request in keys]
            found = await self._fetch(table, "undo_claim_keys", "claim", claim.token, tenants, names, wanted)
        else:
            tenants, names = _columns(claim.held_keys, 2)
            rows = max(_UNDO_ROWS * claim.limit, _LEAST_UNDO_ROWS)
            passed_over = (tenants, names, list(claim.blocked_topics))
            found = await self._fetch(
                table, "undo_claim", "claim", claim.token, *claim.since, rows, *passed_over
            )
        return len(found)

    async def predecessors(
        self, table: TableName, spans: Sequence[KeySpan], view: View
    ) -> dict[KeyId, Predecessor]:
        asked = [span.key_id for span in spans]
        rows = await self._fetch(
            table, "predecessors", "claim",
            *_columns(asked, 2), view.lock_ttl, [span.before for span in spans],
            list(view.own_tokens), view.dead_hold_keys, list(view.unordered_ids),
            [span.after for span in spans],
        )  # fmt: skip
        return {asked[int(row[0]) - 1]: Predecessor(row[1], row[2]) for row in rows}

    async def read_content(self, table: TableName, row_id: RowId) -> None:
        await self._fetch(table, "read_content", "claim", row_id)

    async def position_after(self, table: TableName, since: Position, rows: int) -> Position | None:
        found = await self._fetch(table, "position_after", "claim", *since, rows)
        return (found[0][0], found[0][1]) if found else None

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        ids, tokens = _columns(leases, 2)
        statement = "publish_delete" if delete else "publish"
        partly = await self._fetch(table, statement, "complete", ids, tokens)
        return set(leases).difference(zip(*partly[0], strict=True)) if partly else set()

    async def fail(self, table: TableName, failures: Sequence[Failure]) -> set[Lease]:
        columns = _columns([(f.id, f.token, f.error, f.delay, f.refund, f.dead) for f in failures], 6)
        leases = [(failure.id, failure.token) for failure in failures]
        return _lost(leases, await self._fetch(table, "fail", "complete", *columns))

    async def release(self, table: TableName, leases: Sequence[Lease], *, restamp: bool) -> set[Lease]:
        ids, tokens = _columns(leases, 2)
        return _lost(leases, await self._fetch(table, "release", "complete", ids, tokens, restamp))

    async def resolutions(self, table: TableName, ids: Collection[RowId]) -> dict[RowId, Resolution]:
        rows = await self._fetch(table, "resolutions", "complete", list(ids))
        return {row[0]: Resolution(*row[1:]) for row in rows}

    async def locked_rows(self, table: TableName, ids: Collection[RowId]) -> set[RowId]:
        return {row[0] for row in await self._fetch(table, "locked_rows", "complete", list(ids))}

    async def tick(self, table: TableName) -> Tick:
        now, uncommitted, writers = (await self._fetch(table, "tick", "claim"))[0]
        return Tick(now, frozenset(uncommitted), frozenset(writers))

    async def end_stuck_sessions(self, table: TableName, older_than: float) -> list[int]:
        rows = await self._fetch(table, "end_stuck_sessions", "supervise", table.quoted, older_than)
        return [row[0] for row in rows]

    async def _fetch(self, table: TableName, statement: str, action: str, *parameters: object) -> list[Any]:
        try:
            return await self._sessions.fetch(query(statement, table), *parameters)
        except asyncpg.PostgresError as error:
            raise translated(error, table, action, self._sessions.where) from error


def _terms(claim: Claim) -> tuple[object, ...]:
    """The first parameters of both claim statements."""
    view = (list(claim.own_tokens), claim.dead_hold_keys, list(claim.unordered_ids))
    return (claim.term, claim.token, claim.lock_ttl, claim.max_bytes, *view)


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as the parallel arrays that ``unnest`` takes."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _lost(leases: Sequence[Lease], applied: Sequence[Sequence[Any]]) -> set[Lease]:
    return set() if len(applied) == len(leases) else set(leases).difference(map(tuple, applied))
