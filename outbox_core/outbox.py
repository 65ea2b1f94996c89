"""Writing messages in the caller's own transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, timedelta
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Final
from uuid import UUID

from outbox_core.encoding import encode_json
from outbox_core.errors import (
    ConfigError,
    EventIdConflict,
    MessageError,
    MessageTooLarge,
    NotInTransaction,
    TransactionError,
)
from outbox_core.message import Message, check_uuid, digest
from outbox_core.observer import Enqueued, Observer, tell
from outbox_core.record import NewRecord, State, StoredMessage
from outbox_core.table import TableName
from outbox_core.topic import Topic
from outbox_core.trace import current_trace
from outbox_core.transaction import Transaction, adapt

if TYPE_CHECKING:
    from outbox_core.store import KeyId

DEFAULT_MAX_BYTES: Final = 512 * 1024
"""Of encoded payload plus headers. JSONB text grows on the way out, and brokers commonly stop at 1 MiB."""

_MAX_LIMIT: Final = 1_000_000
_HINT_INTERVAL_SECONDS: Final = 0.05
_VANISHED_TRIES: Final = 3
_MICROSECOND: Final = timedelta(microseconds=1)


class Outbox:
    """Writes messages to one outbox table, in whatever transaction the caller has open.

    Make one per table and keep it: it coalesces the wake-up hints of the process. It holds no connection and no task,
    and may be used from any number of tasks at once.

    ``encode`` turns a payload into JSON text and can be replaced. ``max_bytes`` bounds encoded payload plus headers.
    ``strict_topics`` demands the shape ``<module>.<aggregate>.<event>.vN``. ``hint`` tells relays about new work at
    commit, at most every 50 ms; without it (needed for PREPARE TRANSACTION) they find it within their poll interval.
    ``observers`` are told of every message once it is written, before the caller commits or rolls back.
    """

    def __init__(
        self,
        table: str | TableName,
        *,
        encode: Callable[[object], str] = encode_json,
        max_bytes: int = DEFAULT_MAX_BYTES,
        strict_topics: bool = False,
        hint: bool = True,
        observers: Sequence[Observer] = (),
    ) -> None:
        _check_settings(encode, max_bytes)
        if callable(observers) or not all(map(callable, observers)):
            raise ConfigError(
                "observers must be a sequence of callables that take an event; write observers=[observer]"
            )
        self.table = TableName.parse(table)
        self._encode = encode
        self._max_bytes = max_bytes
        self._strict_topics = strict_topics
        self._hint = hint
        self._observers = tuple(observers)
        self._next_hint = 0.0

    async def enqueue(
        self, tx: object, message: Message, *, serialize_key: bool = False, allow_autocommit: bool = False
    ) -> int:
        """Write one message in the open transaction ``tx`` and return its sequence.

        Nothing is sent and nothing is visible to a relay until the caller commits; a rollback, also to a savepoint,
        leaves nothing. One statement, or two when the ``event_id`` is already there: then nothing new is written and
        the existing sequence comes back, provided the content is the same (else `EventIdConflict`).

        ``serialize_key`` makes writers of one key wait for each other's commits, so that sequence order is commit
        order. ``allow_autocommit`` accepts a connection outside a transaction, where the message is committed by
        itself: only for messages that belong to no other write.
        """
        record = self._record(message)
        transaction = adapt(tx)
        if not allow_autocommit and not await transaction.is_open():
            raise self._not_in_transaction()
        sequence = (await self._write(transaction, (record,), serialize_key))[0]
        if self._observers:
            self._tell(record, sequence)
        return sequence

    async def enqueue_many(
        self,
        tx: object,
        messages: Iterable[Message],
        *,
        serialize_key: bool = False,
        allow_autocommit: bool = False,
    ) -> list[int]:
        """Write many messages as `enqueue` does, in one statement, and return their sequences in input order.

        Every message is validated before the first one is written. After an `EventIdConflict` the others may have been
        written in ``tx``: roll it back, or to a savepoint.
        """
        records = [self._record(message) for message in _several(messages)]
        transaction = adapt(tx)
        if not allow_autocommit and not await transaction.is_open():
            raise self._not_in_transaction()
        if not records:
            return []
        distinct = self._distinct(records)
        sequences = list(await self._write(transaction, distinct, serialize_key))
        if self._observers:
            for record, sequence in zip(distinct, sequences, strict=True):
                self._tell(record, sequence)
        if len(distinct) == len(records):
            return sequences
        by_id = {record.event_id: sequence for record, sequence in zip(distinct, sequences, strict=True)}
        return [by_id[record.event_id] for record in records]

    async def get(self, tx: object, event_id: UUID, *, payload: bool = False) -> StoredMessage | None:
        """Read one message back by its ``event_id``, or None. Its payload and headers come only when asked for."""
        check_uuid("event_id", event_id)
        return await adapt(tx).get(self.table, event_id, payload=payload)

    async def count(
        self, tx: object, *, tenant_id: UUID | None = None, state: State | str | None = None
    ) -> int:
        """Count messages, of one tenant or all, in one state (a `State` or its value) or all.

        Counting states before publication is cheap; counting published rows reads all that retention keeps.
        """
        if tenant_id is not None:
            check_uuid("tenant_id", tenant_id)
        wanted = None if state is None else _state(state)
        return await adapt(tx).count(self.table, tenant_id=tenant_id, state=wanted)

    async def pending(
        self, tx: object, *, tenant_id: UUID | None = None, limit: int = 100, payload: bool = False
    ) -> list[StoredMessage]:
        """The messages still to be delivered, in flight ones included: in the order in which they come up, or by
        sequence when one tenant's are asked for. ``limit`` is a million at most."""
        if tenant_id is not None:
            check_uuid("tenant_id", tenant_id)
        _check_limit(limit)
        return await adapt(tx).pending(self.table, tenant_id=tenant_id, limit=limit, payload=payload)

    def _record(self, message: Message) -> NewRecord:
        if not isinstance(message, Message):
            raise MessageError(f"expected a Message, got {type(message).__name__}")
        if self._strict_topics:
            Topic.parse(message.topic)
        payload = message.json_text(self._encode)
        encoded = (message.body or b"") if payload is None else payload.encode()
        headers = _headers_text(message.headers) if message.headers else None
        size = len(encoded) + (len(headers.encode()) if headers is not None else 0)
        if size > self._max_bytes:
            raise MessageTooLarge(size=size, limit=self._max_bytes)
        traceparent, tracestate = message.traceparent, message.tracestate
        if traceparent is None:
            traceparent, tracestate = current_trace()
        return NewRecord(
            message.event_id,
            message.tenant_id,
            message.topic,
            message.key,
            payload,
            message.body,
            message.content_type,
            headers,
            traceparent,
            tracestate,
            digest(message.topic, message.tenant_id, message.key, message.content_type, encoded),
            None if message.delay is None else message.delay // _MICROSECOND,
            # In UTC, because PostgreSQL does not read every offset that Python has.
            None if message.available_at is None else message.available_at.astimezone(UTC),
        )

    def _not_in_transaction(self) -> NotInTransaction:
        return NotInTransaction(
            f"cannot enqueue into {self.table} outside a transaction: the message would be committed apart from the"
            " data it belongs to. Begin a transaction first, or pass allow_autocommit=True if it belongs to none"
        )

    def _distinct(self, records: list[NewRecord]) -> list[NewRecord]:
        """The records without repetitions of an ``event_id``; a repetition with other content is a conflict."""
        if len({record.event_id for record in records}) == len(records):
            return records
        by_id: dict[UUID, NewRecord] = {}
        for record in records:
            first = by_id.setdefault(record.event_id, record)
            if first.digest != record.digest:
                raise EventIdConflict(record.event_id, self.table)
        return list(by_id.values())

    async def _write(
        self, transaction: Transaction, records: Sequence[NewRecord], serialize_key: bool
    ) -> Sequence[int]:
        """The sequences of records whose ids are distinct, in their order."""
        serialize = _keys(records) if serialize_key else ()
        drawn = await transaction.insert(self.table, records, serialize=serialize, hint=self._hint_is_due())
        if drawn is not None:
            return drawn
        found: dict[UUID, int] = {}
        missing = records
        for _ in range(_VANISHED_TRIES):
            found |= await self._existing(transaction, missing)
            missing = [record for record in missing if record.event_id not in found]
            if not missing:
                return [found[record.event_id] for record in records]
            # The rows in the way were deleted, or rolled back, before they could be read; or the store writes none of a
            # batch that has a duplicate.
            drawn = await transaction.insert(self.table, missing, serialize=serialize, hint=False)
            if drawn is not None:
                found |= {record.event_id: number for record, number in zip(missing, drawn, strict=True)}
                return [found[record.event_id] for record in records]
        raise TransactionError(
            f"the rows that hold {len(missing)} event ids in {self.table} were deleted again and again while they were"
            " being enqueued; retry the transaction"
        )

    async def _existing(self, transaction: Transaction, records: Sequence[NewRecord]) -> dict[UUID, int]:
        """The sequences of those records that are there; other content under the same id is a conflict."""
        rows = await transaction.existing(self.table, [record.event_id for record in records])
        digests = {record.event_id: record.digest for record in records}
        for row in rows:
            if row.digest != digests[row.event_id]:
                raise EventIdConflict(row.event_id, self.table)
        return {row.event_id: row.sequence for row in rows}

    def _tell(self, record: NewRecord, sequence: int) -> None:
        content = (record.body or b"") if record.payload is None else record.payload.encode()
        event = Enqueued(
            self.table, record.topic, record.event_id, record.tenant_id, sequence, len(content), record.digest
        )
        tell(self._observers, event)

    def _hint_is_due(self) -> bool:
        if not self._hint:
            return False
        now = time.monotonic()
        if now < self._next_hint:
            return False
        self._next_hint = now + _HINT_INTERVAL_SECONDS
        return True


def _check_settings(encode: object, max_bytes: object) -> None:
    if not callable(encode):
        raise ConfigError(f"encode must be a function from a payload to JSON text, got {encode!r}")
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or max_bytes <= 0:
        raise ConfigError(f"max_bytes must be a positive int, got {max_bytes!r}")


def _check_limit(limit: object) -> None:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _MAX_LIMIT:
        raise ConfigError(f"limit must be an int from 1 to {_MAX_LIMIT}, got {limit!r}")


def _state(value: State | str) -> State:
    try:
        return State(value)
    except ValueError:
        raise ConfigError(f"state must be one of {', '.join(State)}, got {value!r}") from None


def _several(messages: Iterable[Message]) -> Iterable[Message]:
    if isinstance(messages, Message):
        raise MessageError("enqueue_many takes several messages; use enqueue for one")
    try:
        return iter(messages)
    except TypeError:
        raise MessageError(
            f"enqueue_many takes an iterable of messages, got {type(messages).__name__}"
        ) from None


def _headers_text(headers: Mapping[str, str]) -> str:
    """What ``json.dumps`` makes of a dict of text, in half the time."""
    members = [f"{encode_basestring(name)}:{encode_basestring(value)}" for name, value in headers.items()]
    return "{" + ",".join(members) + "}"


def _keys(records: Sequence[NewRecord]) -> Sequence[KeyId]:
    """The ordering keys of the records, each once."""
    return list(dict.fromkeys((record.tenant_id, record.key) for record in records if record.key is not None))
