"""The one path of meaning for every PostgreSQL driver: which statement, which parameters, how rows are read.

Parameters travel as text (bodies and digests as bytes) and are cast in SQL, and results come back as text, integers
and bytes, so that type codecs, row factories and the search_path of the caller's connection change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import UUID

from outbox_core.errors import PermissionDenied, SchemaError, SchemaMissing, TransactionError
from outbox_core.identifiers import uuid7_texts
from outbox_core.record import Existing, NewRecord, State, StoredMessage
from outbox_core.stores.postgres.advisory import ordering_locks
from outbox_core.stores.postgres.sql import render

if TYPE_CHECKING:
    from outbox_core.store import KeyId
    from outbox_core.table import TableName

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNDEFINED_TABLE: Final = ("42P01", "3F000")
_UNDEFINED_COLUMN: Final = "42703"
_INSUFFICIENT_PRIVILEGE: Final = "42501"
_WRITING: Final = ("queries/enqueue.sql", "queries/enqueue_many.sql", "queries/existing.sql")
_UNPUBLISHED: Final = (State.PENDING, State.IN_FLIGHT, State.DEAD)


class Driver(Protocol):
    """The two things that differ between drivers: seeing an open transaction, and running a statement with ``$n``."""

    async def is_open(self) -> bool: ...

    def fetch(
        self, statement: str, parameters: Sequence[object]
    ) -> Coroutine[Any, Any, Sequence[Sequence[Any]]]: ...


class PostgresTransaction:
    """`Transaction` on PostgreSQL, through whichever driver the caller uses."""

    __slots__ = ("_driver",)

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def is_open(self) -> bool:
        return await self._driver.is_open()

    async def insert(
        self, table: TableName, records: Sequence[NewRecord], *, serialize: Sequence[KeyId], hint: bool
    ) -> list[int] | None:
        hinted = str(table) if hint else ""
        if len(records) == 1 and not serialize:
            rows = await self._fetch(table, "queries/enqueue.sql", *_row(records[0]), hinted)
        else:
            locks = [str(lock) for lock in ordering_locks(table, serialize)]
            rows = await self._fetch(table, "queries/enqueue_many.sql", *_columns(records), hinted, locks)
        if len(rows) != len(records):
            return None
        return sorted([row[0] for row in rows])

    async def existing(self, table: TableName, event_ids: Sequence[UUID]) -> list[Existing]:
        rows = await self._fetch(table, "queries/existing.sql", [str(event_id) for event_id in event_ids])
        return [Existing(UUID(row[0]), row[1], bytes.fromhex(row[2])) for row in rows]

    async def get(self, table: TableName, event_id: UUID, *, payload: bool) -> StoredMessage | None:
        rows = await self._fetch(table, f"queries/get{_content(payload)}.sql", str(event_id))
        return _stored(rows[0]) if rows else None

    async def count(self, table: TableName, *, tenant_id: UUID | None, state: State | None) -> int:
        query = "queries/count_unpublished.sql" if state in _UNPUBLISHED else "queries/count.sql"
        tenant = None if tenant_id is None else str(tenant_id)
        rows = await self._fetch(table, query, tenant, None if state is None else state.value)
        count: int = rows[0][0]
        return count

    async def pending(
        self, table: TableName, *, tenant_id: UUID | None, limit: int, payload: bool
    ) -> list[StoredMessage]:
        if tenant_id is None:
            rows = await self._fetch(table, f"queries/pending{_content(payload)}.sql", str(limit))
        else:
            query = f"queries/pending_of_tenant{_content(payload)}.sql"
            rows = await self._fetch(table, query, str(limit), str(tenant_id))
        return [_stored(row) for row in rows]

    async def _fetch(self, table: TableName, query: str, *parameters: object) -> Sequence[Sequence[Any]]:
        try:
            return await self._driver.fetch(render(query, table), parameters)
        except Exception as error:
            state = _sqlstate(error)
            if state in _UNDEFINED_TABLE:
                raise SchemaMissing(table) from error
            if state == _UNDEFINED_COLUMN:
                raise SchemaError(
                    table,
                    "a column that this library works with is not there. See what differs with"
                    f" `await outbox_core.schema.verify(connection, {str(table)!r})`",
                ) from error
            if state == _INSUFFICIENT_PRIVILEGE:
                raise _denied(table, query) from error
            raise


def _denied(table: TableName, query: str) -> PermissionDenied:
    if query in _WRITING:
        return PermissionDenied(table, "enqueue into", part="producer")
    if query.endswith(f"{_content(wanted=True)}.sql"):
        return PermissionDenied(table, "read the content of messages of", part="relay")
    return PermissionDenied(table, "read from", part="viewer")


def closed(driver: str) -> TransactionError:
    """The error of a connection that can carry nothing any more."""
    return TransactionError(
        f"cannot enqueue: the {driver} connection is closed, and its transaction is gone with it;"
        " open another and run the whole transaction again"
    )


def _row(record: NewRecord) -> tuple[str | bytes | None, ...]:
    """One row in the order of the parameters of ``enqueue.sql``."""
    return (
        *uuid7_texts(1),
        record.event_id.hex,
        record.tenant_id.hex,
        *record[2:11],
        "0" if record.delay_microseconds is None else _interval(record.delay_microseconds),
        None if record.available_at is None else record.available_at.isoformat(),
    )


def _columns(records: Sequence[NewRecord]) -> list[list[str | None]]:
    """The rows column by column in the order of the parameters of ``enqueue_many.sql``: bytes as hexadecimal text.

    A column in which no row has anything is empty: ``unnest`` fills short arrays up with NULL.
    """
    (
        events,
        tenants,
        topics,
        keys,
        payloads,
        bodies,
        types,
        headers,
        parents,
        states,
        digests,
        delays,
        stamps,
    ) = zip(*records, strict=True)
    one_tenant = tenants.count(tenants[0]) == len(tenants)
    return [
        uuid7_texts(len(records)),
        [event.hex for event in events],
        [tenants[0].hex] * len(tenants) if one_tenant else [tenant.hex for tenant in tenants],
        list(topics),
        _sparse(keys),
        _sparse(payloads),
        [None if body is None else body.hex() for body in _sparse(bodies)],
        _sparse(types),
        _sparse(headers),
        _sparse(parents),
        _sparse(states),
        [digest.hex() for digest in digests],
        [None if delay is None else _interval(delay) for delay in _sparse(delays)],
        [None if stamp is None else stamp.isoformat() for stamp in _sparse(stamps)],
    ]


def _sparse(column: Sequence[T | None]) -> list[T | None]:
    return [] if column.count(None) == len(column) else list(column)


def _interval(microseconds: int) -> str:
    """Seconds with a fraction: PostgreSQL 14 takes no number above 2147483647 in an interval."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    return f"{seconds}.{fraction:06} seconds"


def _stored(row: Sequence[Any]) -> StoredMessage:
    (sequence, event_id, tenant_id, topic, key, state, attempts, replays) = row[:8]
    (created, available, published, dead, last_error, content_type) = row[8:14]
    headers, payload, body = row[14:] or (None, None, None)
    return StoredMessage(
        sequence=sequence,
        event_id=UUID(event_id),
        tenant_id=UUID(tenant_id),
        topic=topic,
        key=key,
        state=State(state),
        attempts=attempts,
        replays=replays,
        created_at=_time(created),
        available_at=_time(available),
        published_at=None if published is None else _time(published),
        dead_at=None if dead is None else _time(dead),
        last_error=last_error,
        headers=None if headers is None else MappingProxyType(json.loads(headers)),
        payload=payload.encode() if payload is not None else body,
        content_type=content_type,
    )


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _content(wanted: bool) -> str:
    """Statements that do not name payload, body and headers are open to a role that may not read them."""
    return "_content" if wanted else ""


def _sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of a driver's error, also of one that SQLAlchemy has wrapped."""
    origin = getattr(error, "orig", None) or error
    state = getattr(origin, "sqlstate", None)
    return state if isinstance(state, str) else None
