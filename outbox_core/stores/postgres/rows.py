"""Claimed rows as messages. Done for every row a relay delivers, so it is written for speed.

A frozen dataclass sets each field through a function call, which made building one the most expensive step of a row's
way through the relay. Here an object with the same slots is filled by plain assignment and then becomes the frozen one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from asyncpg.pgproto import pgproto

from outbox_core.headers import NO_HEADERS
from outbox_core.meta import DispatchedMessage, Meta
from outbox_core.store import Row

if TYPE_CHECKING:
    from outbox_core.table import TableName


_PLACE: Final = itemgetter(9, 6)
_decoded: Final = json.JSONDecoder(parse_int=str).decode
"""Values are text; a number that came in by hand stays text, however long it is."""


class _Meta:
    __slots__ = Meta.__slots__


class _Message:
    __slots__ = DispatchedMessage.__slots__


def claimed_rows(table: TableName, token: UUID, records: Sequence[Sequence[Any]]) -> list[Row]:
    """The rows of a claim in the order of their places; columns as in ``claim_columns.sql``."""
    name = str(table)
    # The driver's own kind, which it writes out quicker: the token goes back to it with every row.
    token = pgproto.UUID(token.bytes)
    rows: list[Row] = []
    for record in sorted(records, key=_PLACE):
        (row_id, tenant_id, topic, payload, content_type, event_id, sequence, created_at,
         attempts, available_at, key, headers, traceparent, tracestate, replays, recovered) = record  # fmt: skip
        meta: Any = _Meta()
        meta.table = name
        meta.tenant_id = tenant_id
        meta.topic = topic
        meta.event_id = event_id
        meta.sequence = sequence
        meta.attempts = attempts
        meta.replays = replays
        meta.key = key
        meta.headers = NO_HEADERS if headers is None else _decoded(headers)
        meta.created_at = created_at
        meta.traceparent = traceparent
        meta.tracestate = tracestate
        meta.__class__ = Meta
        message: Any = _Message()
        message.meta = meta
        message.payload = payload
        message.content_type = content_type
        message.__class__ = DispatchedMessage
        key_id = None if key is None else (tenant_id, key)
        rows.append(Row(row_id, token, message, available_at, key_id, recovered))
    return rows
