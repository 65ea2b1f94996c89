"""The contract between a relay and the store that holds its messages.

A store is passive: the relay decides what to claim, and the store leases, records and answers. The in-memory store is
the reference; `outbox_core.testing.contracts.store` has the suite that every store passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, overload
from uuid import UUID

if TYPE_CHECKING:
    from outbox_core.meta import DispatchedMessage
    from outbox_core.table import TableName

_T = TypeVar("_T")
_Made = TypeVar("_Made", covariant=True)

KeyId: TypeAlias = tuple[UUID, str]
"""The id of an ordering key: its tenant, and the key itself."""

RowId: TypeAlias = Hashable
"""The id of a row, made by its store and opaque to everything else."""

Lease: TypeAlias = tuple[RowId, UUID]
"""The id of a row and the token under which it is leased."""

Marker: TypeAlias = Hashable
"""Stands for a transaction that is under way; made by the store and opaque to everything else."""

Position: TypeAlias = tuple[datetime, int]
"""A position in the order of claims: ``(available_at, sequence)``."""

BEGINNING: Final[Position] = (datetime(1, 1, 2, tzinfo=UTC), 0)
"""Before every row. A store whose times begin later takes it for its own first moment."""

LAST_SEQUENCE: Final = 2**63 - 1
END: Final[Position] = (datetime(9999, 12, 30, tzinfo=UTC), LAST_SEQUENCE)
"""After every row that is due. A store whose times end earlier takes it for its own last moment."""


def position_of(due: float, sequence: int) -> Position:
    """The position of a row that is due ``due`` seconds after 1970; exact to the microsecond from 1700 to 2241."""
    return (datetime.fromtimestamp(due, UTC), sequence)


@dataclass(frozen=True, slots=True)
class Claim:
    """The terms of a claim.

    ``token`` is made before the claim and fences every later write of its rows. ``term`` is the leader's, or None where
    no relay leads: a claim with a term that is over takes nothing. Rows of ``held_keys`` and ``blocked_topics`` are
    passed over, as are positions before ``since`` and after ``until``. ``limit`` bounds rows and ``max_bytes`` payloads
    as they will be in memory; one row comes however large it is. A lease older than ``lock_ttl`` seconds is void.
    ``own_tokens`` are those of earlier claims of which the relay has rows in flight. It knows their order, but for
    ``unordered_ids``, which it is releasing. With ``dead_hold_keys`` a dead row comes before the others of its key.
    With ``without_content`` rows are leased and their content is not read: it comes back empty. Without
    ``find_predecessors`` the claim says nothing about what comes before its rows.
    """

    token: UUID
    term: int | None
    limit: int
    max_bytes: int
    lock_ttl: float
    since: Position = BEGINNING
    until: Position = END
    held_keys: Sequence[KeyId] = ()
    blocked_topics: Sequence[str] = ()
    own_tokens: Sequence[UUID] = ()
    unordered_ids: Sequence[RowId] = ()
    dead_hold_keys: bool = False
    without_content: bool = False
    find_predecessors: bool = True

    @property
    def view(self) -> View:
        """The view of the relay that sends the claim, once it has been answered."""
        return View(self.lock_ttl, (*self.own_tokens, self.token), self.unordered_ids, self.dead_hold_keys)


@dataclass(frozen=True, slots=True)
class View:
    """The rows that count as predecessors for one relay.

    Rows under ``own_tokens`` do not count: the relay knows their order. Those of ``unordered_ids`` count in any case,
    and the relay need not wait for their leases to end. A lease older than ``lock_ttl`` seconds is void. With
    ``dead_hold_keys`` a dead row comes before the others of its key.
    """

    lock_ttl: float
    own_tokens: Sequence[UUID] = ()
    unordered_ids: Sequence[RowId] = ()
    dead_hold_keys: bool = False


@dataclass(frozen=True, slots=True)
class LeasedRow:
    """A row under its lease."""

    id: RowId
    token: UUID
    message: DispatchedMessage
    due: float
    """Its ``available_at``, in seconds since 1970."""
    key_id: KeyId | None
    recovered: bool = False
    """True if the lease before this one ended without an outcome: its owner crashed or froze, maybe over this row."""

    @property
    def lease(self) -> Lease:
        return (self.id, self.token)

    @property
    def position(self) -> Position:
        return position_of(self.due, self.message.meta.sequence)


class RowFactory(Protocol[_Made]):
    """Makes an object of a leased row, from the values of a `LeasedRow` in their order."""

    def __call__(
        self,
        row_id: RowId,
        token: UUID,
        message: DispatchedMessage,
        due: float,
        key_id: KeyId | None,
        recovered: bool,
        /,
    ) -> _Made: ...


class RowSource(Protocol):
    """Makes the rows of a claim, in the order of their positions, calling ``make`` once a row."""

    def __call__(self, make: RowFactory[_T], /) -> list[_T]: ...


class KeySpan(NamedTuple):
    """The part of a key that is searched for predecessors: the sequences between two bounds, both excluded.

    The caller knows that no row up to ``after`` is pending or leased, but for its own. Dead rows count from the
    beginning of the key.
    """

    key_id: KeyId
    after: int
    before: int


class KeyRequest(NamedTuple):
    """A request for at most ``rows`` rows of a key, lowest sequences first, above ``after`` as in a `KeySpan`."""

    key_id: KeyId
    rows: int
    after: int = 0


@dataclass(frozen=True, slots=True)
class Predecessor:
    """An unresolved row with a lower sequence. ``wait`` is the seconds until it is due and free, None if it is dead."""

    sequence: int
    wait: float | None


@dataclass(frozen=True, slots=True)
class Leased:
    """The answer to a claim.

    ``predecessors`` has, for each key of these rows, the first unresolved row with a lower sequence that is neither
    among them nor under the claim's own tokens; replayed rows do not count. None means that the store did not search:
    the claim has no term and so promises no order, it did not ask for predecessors, or this store finds them by
    `Store.predecessors` alone. Searching later is as good: a predecessor is still there then, or resolved.

    The rows are made when they are asked for. The rest is known at once, so the next claim need not wait for them.
    """

    count: int
    bytes: int
    """The size of their payloads in memory."""
    last: Position | None
    """The position of the last row."""
    recovered: bool
    """True if the lease before ended without an outcome for any of them."""
    predecessors: Mapping[KeyId, Predecessor] | None
    source: RowSource

    @overload
    def rows(self) -> list[LeasedRow]: ...
    @overload
    def rows(self, make: RowFactory[_T]) -> list[_T]: ...
    def rows(self, make: RowFactory[Any] = LeasedRow) -> list[Any]:
        """Make the rows, anew with each call."""
        return self.source(make)

    @classmethod
    def of(cls, rows: Sequence[LeasedRow], predecessors: Mapping[KeyId, Predecessor] | None) -> Leased:
        """Answer with rows that are made already, in the order of their positions."""

        def source(make: RowFactory[_T]) -> list[_T]:
            return [make(row.id, row.token, row.message, row.due, row.key_id, row.recovered) for row in rows]

        return cls(
            count=len(rows),
            bytes=sum(len(row.message.payload) for row in rows),
            last=rows[-1].position if rows else None,
            recovered=any(row.recovered for row in rows),
            predecessors=predecessors,
            source=source,
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """The verdict on a leased row that was not published: reschedule it, ``delay`` seconds from now, or dead-letter it.
    ``refund`` takes back the attempt that this lease counted."""

    id: RowId
    token: UUID
    error: str
    delay: float
    refund: bool
    dead: bool


@dataclass(frozen=True, slots=True)
class Resolution:
    """The verdict on record of a row. ``attempts`` identifies the lease that wrote it: each lease counts one."""

    published: bool
    attempts: int
    replays: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Tick:
    """The store's clock, and the transactions that are under way, as markers.

    A transaction that may have stamped a row is among ``uncommitted`` until it commits or rolls back. One that may have
    drawn a sequence of the table is among ``writers`` until then. The two sets may be equal. A marker is never reused.
    """

    now: datetime
    uncommitted: frozenset[Marker]
    writers: frozenset[Marker]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Abilities of a store over the connection that it has. A relay delivers without any of them."""

    pooled: bool = False
    """A transaction pooler stands between the relay and the database, so no session is the relay's own."""
    session_locks: bool
    """A leader's lock ends with its session, so a leader that is gone is replaced at once. Without, it is replaced
    after its takeover time."""
    wakeups: Literal["push", "poll"]
    """``push``: the database sends a hint when a message commits. ``poll``: hints come from the store's own polling, or
    not at all, and the relay's ``poll_interval`` finds messages."""
    transaction_start_time: bool
    """``created_at`` is the start of the writing transaction. Without, it is the time of the write."""
    advisory_key_locks: bool
    """Writers that serialize on one key never wait for writers of another."""


class Election(Protocol):
    """The leadership of one table.

    Each method is one atomic step, bounded in time. Raises `StorageError` when it did not happen or may not have. Not
    for several tasks at a time: the caller waits for one method before it calls the next.
    """

    async def campaign(self) -> int | None:
        """Try to become the leader, without waiting for the present one; the new term, higher than any before.

        None means that another relay leads. Raises `StorageError` if the record of the leadership is gone, so that no
        relay can lead.
        """
        ...

    async def heartbeat(self, term: int) -> bool:
        """Show that the leader is alive; false when the term is over. Raises `StorageError` if its record is gone."""
        ...

    async def resign(self, term: int) -> None:
        """End the term, so that another relay can lead at once. Never ends a newer term."""
        ...


class Store(Protocol):
    """Holds the messages of any number of tables.

    Each method is one atomic step, bounded in time: it happens as a whole or not at all, also if the caller is
    cancelled. Raises `StorageError` when it did not happen or may not have; a write that may have happened
    can be repeated, because it names its lease. Safe for use by many tasks at a time; steps of different tasks have
    no order. The store's clock alone decides what is due and which lease is void.
    """

    async def open(self, tables: Sequence[TableName]) -> None:
        """Connect, and check that each table can be served. Comes before every step. Raises an error that names the
        command that fixes what is wrong."""
        ...

    async def close(self) -> None:
        """End everything, within a few seconds. Steps in progress fail. Can be repeated."""
        ...

    def abort(self) -> None:
        """Fail every step in progress at once. Can be repeated, and needs a `close` after it."""
        ...

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        """Lease due rows, lowest positions first, and count an attempt for each.

        Leases take effect together. Content may be read after that, by the claim's token. Predecessors are searched in
        the state of the table that the rows were taken from or in a later one. Claims at the same time share no row.
        Raises `ContentUnreadable` when content cannot be read; a store that can always read it never raises this.
        """
        ...

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        """Lease due rows of the given keys, lowest sequences first, and count an attempt for each.

        A row that is not due counts among the requested rows and is not leased; a replayed one does not count. The
        bounds ``since`` and ``until``, ``held_keys``, ``blocked_topics`` and ``limit`` of the claim do not apply, and
        predecessors are searched even without ``find_predecessors``. The rest is as in `claim`.
        """
        ...

    async def undo_claim(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> int:
        """Release what a claim may have leased whose answer was lost, attempts refunded; the number of rows.

        ``keys`` are those that were given to `claim_keys`, empty after a `claim`. The search covers the positions, or
        the sequences, from which the claim took rows first. A row that it misses is free when its lease ends. The claim
        may still be under way and take effect later: then 0 is the answer now, and a repetition finds its rows.
        """
        ...

    async def predecessors(
        self, table: TableName, spans: Sequence[KeySpan], view: View
    ) -> dict[KeyId, Predecessor]:
        """Find the first unresolved row of each span that counts in the view; no entry for a span that has none.

        Replayed rows come before no other row. They count only in a span up to `LAST_SEQUENCE`, which asks what a key
        has to deliver, and only if they are due and free. All spans are searched in one state of the table.
        """
        ...

    async def read_content(self, table: TableName, row_id: RowId) -> None:
        """Read the content of one row as a claim would, and drop it. Changes nothing. Raises `ContentUnreadable` when
        it cannot be read; a store that can always read it never raises this."""
        ...

    async def position_after(self, table: TableName, since: Position, rows: int) -> Position | None:
        """Find the position that is ``rows`` due rows on from ``since``, leased rows included; None if there are not as
        many. Changes nothing."""
        ...

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        """Record rows as published, or delete them; the leases that were lost, whose rows are unchanged. The others are
        written together."""
        ...

    async def fail(self, table: TableName, failures: Sequence[Failure]) -> set[Lease]:
        """Reschedule or dead-letter rows; the leases that were lost, whose rows are unchanged. The others are written
        together."""
        ...

    async def release(self, table: TableName, leases: Sequence[Lease], *, restamp: bool) -> set[Lease]:
        """Return rows undispatched, attempts refunded; the leases that were lost, whose rows are unchanged. The others
        are written together. With ``restamp`` rows become due as of now, so that relays that have read past them find
        them."""
        ...

    async def resolutions(self, table: TableName, ids: Collection[RowId]) -> dict[RowId, Resolution]:
        """Find the rows that are published or dead. Rows that are pending, leased or deleted have no entry. Changes
        nothing."""
        ...

    async def locked_rows(self, table: TableName, ids: Collection[RowId]) -> set[RowId]:
        """Find the rows that another session keeps locked at this moment, so that a write of them would wait. A lease
        is no such lock. Changes nothing."""
        ...

    async def tick(self, table: TableName) -> Tick:
        """Read the clock, and which transactions may still commit rows, as of one moment. Changes nothing."""
        ...

    async def end_stuck_sessions(self, table: TableName, older_than: float) -> list[int]:
        """End sessions of relays that have been sending rows to a frozen process for ``older_than`` seconds; their ids.
        A store whose server does that by itself ends none."""
        ...

    def election(self, table: TableName) -> Election:
        """Make a candidate for the leadership of a table."""
        ...

    def listen(self, tables: Collection[TableName], callback: Callable[[TableName | None], None]) -> None:
        """Call ``callback`` from now on with a table whenever a wake-up hint for it arrives, and with None when hints
        may have been missed. Hints may be late, doubled or lost. Replaces an earlier listener. May come before `open`.
        """
        ...

    async def keep_listening(self) -> None:
        """Make sure that hints can arrive, and return once none can be missed: a message that commits later brings a
        hint, or the callback gets None. A relay that holds no elections calls it now and then."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this store; final once it is open."""
        ...
