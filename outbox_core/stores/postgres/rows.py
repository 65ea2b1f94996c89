"""Claimed rows as messages. Done for every row a relay delivers, so it is written for speed.

A frozen dataclass sets each field through a function call, which made building one the most expensive step of a row's
way through the relay. Here an object with the same slots is filled by plain assignment and then becomes the frozen one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from uuid import UUID

from asyncpg.pgproto import pgproto

from outbox_core.errors import StorageUnavailable
from outbox_core.headers import NO_HEADERS
from outbox_core.meta import DispatchedMessage, Meta
from outbox_core.store import Claim, KeyId, Leased, Predecessor, RowFactory, position_of

if TYPE_CHECKING:
    from outbox_core.table import TableName


_T = TypeVar("_T")
_POSITION: Final = itemgetter(9, 6)
_moment: Final = datetime.fromtimestamp
_PAYLOAD: Final = itemgetter(3)
_RECOVERED: Final = itemgetter(15)
_PREDECESSORS: Final = 16
_decoded: Final = json.JSONDecoder(parse_int=str).decode
"""Values are text; a number that came in by hand stays text, however long it is."""


def _headers(text: str) -> dict[str, str]:
    """Headers as they are in the row, which may have been edited by hand. Text that is no mapping, or nested too deep,
    stands under an empty name, which every adapter refuses."""
    try:
        read: object = _decoded(text)
    except (RecursionError, ValueError):
        read = None
    return cast("dict[str, str]", read) if isinstance(read, dict) else {"": text}


class _Meta:
    __slots__ = Meta.__slots__


class _Message:
    __slots__ = DispatchedMessage.__slots__


def leased(table: TableName, claim: Claim, records: list[Any], *, searched: bool) -> Leased:
    """The answer to a claim, with predecessors if it ``searched``; columns as in ``lease.sql``."""
    ordered = searched and claim.term is not None
    if not records:
        return Leased.of([], {} if ordered else None)
    records.sort(key=_POSITION)

    def source(make: RowFactory[_T]) -> list[_T]:
        return _rows(table, claim.token, records, make)

    return Leased(
        count=len(records),
        bytes=sum(map(len, map(_PAYLOAD, records))),
        last=position_of(*_POSITION(records[-1])),
        recovered=any(map(_RECOVERED, records)),
        predecessors=_predecessors(records) if ordered else None,
        source=source,
    )


def _predecessors(records: Sequence[Sequence[Any]]) -> dict[KeyId, Predecessor]:
    found: str | None = next(
        (record[_PREDECESSORS] for record in records if record[_PREDECESSORS] is not None), None
    )
    if found is None:
        # Another session edited the very row that brings them while it was being claimed.
        raise StorageUnavailable("the first of the claimed rows changed meanwhile")
    return {
        (pgproto.UUID(tenant_id), key): Predecessor(sequence, wait)
        for tenant_id, key, sequence, wait in json.loads(found)
    }


def _rows(table: TableName, token: UUID, records: Sequence[Sequence[Any]], make: RowFactory[_T]) -> list[_T]:
    name = str(table)
    # The driver's own kind, which it encodes faster: every write of a row sends the token.
    token = pgproto.UUID(token.bytes)
    tenant: UUID = records[0][1]
    rows: list[_T] = []
    for record in records:
        (row_id, tenant_id, topic, payload, content_type, event_id, sequence, created_at,
         attempts, due, key, headers, traceparent, tracestate, replays, recovered, _) = record  # fmt: skip
        meta: Any = _Meta()
        meta.table = name
        if tenant_id != tenant:
            tenant = tenant_id
        # The same object as in the row before if it is the same tenant: its hash, which is expensive, is known by then.
        meta.tenant_id = tenant
        meta.topic = topic
        meta.event_id = event_id
        meta.sequence = sequence
        meta.attempts = attempts
        meta.replays = replays
        meta.key = key
        meta.headers = NO_HEADERS if headers is None else _headers(headers)
        meta.created_at = _moment(created_at, UTC)
        meta.traceparent = traceparent
        meta.tracestate = tracestate
        meta.__class__ = Meta
        message: Any = _Message()
        message.meta = meta
        message.payload = payload
        message.content_type = content_type
        message.__class__ = DispatchedMessage
        key_id = None if key is None else (tenant, key)
        rows.append(make(row_id, token, message, due, key_id, recovered))
    return rows
