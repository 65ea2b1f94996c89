"""What a relay asks of the place where messages are kept. PostgreSQL is first and best; memory is the reference."""

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
"""An ordering key and the tenant it belongs to."""

RowId: TypeAlias = Hashable
"""The id of a row, made by its store, which alone knows what is in it."""

Lease: TypeAlias = tuple[RowId, UUID]
"""The id of a row and the token under which it is leased."""

Marker: TypeAlias = Hashable
"""Stands for a transaction that is under way; the store alone knows what is in it."""

Position: TypeAlias = tuple[datetime, int]
"""A place in the order of claims: ``(available_at, sequence)``."""

BEGINNING: Final[Position] = (datetime(1, 1, 2, tzinfo=UTC), 0)
"""Before every row. A store whose times begin later takes it for its own first moment."""

LAST_SEQUENCE: Final = 2**63 - 1
END: Final[Position] = (datetime(9999, 12, 30, tzinfo=UTC), LAST_SEQUENCE)
"""After every row that is due. A store whose times end earlier takes it for its own last moment."""


def position_of(due: float, sequence: int) -> Position:
    """The place of a row that is due so many seconds after 1970; true to the microsecond from 1700 to 2241."""
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
    """What counts as a predecessor for one relay.

    Rows under ``own_tokens`` do not: the relay knows their order. Those of ``unordered_ids`` do, though their token is
    among them, and nobody waits for their lease to end. A lease older than ``lock_ttl`` seconds is void. With
    ``dead_hold_keys`` a dead row comes before the others of its key.
    """

    lock_ttl: float
    own_tokens: Sequence[UUID] = ()
    unordered_ids: Sequence[RowId] = ()
    dead_hold_keys: bool = False


@dataclass(frozen=True, slots=True)
class LeasedRow:
    """A row as a claim leases it."""

    id: RowId
    token: UUID
    message: DispatchedMessage
    due: float
    """Its ``available_at``, in seconds since 1970."""
    key_id: KeyId | None
    recovered: bool = False
    """Whether the lease before this one ended without an outcome: its owner crashed or froze, maybe over this row."""

    @property
    def lease(self) -> Lease:
        return (self.id, self.token)

    @property
    def position(self) -> Position:
        return position_of(self.due, self.message.meta.sequence)


class RowFactory(Protocol[_Made]):
    """Makes something of a leased row, of the values that a `LeasedRow` has, in their order."""

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
    """Makes the rows of a claim, in the order of their places, calling ``make`` once a row."""

    def __call__(self, make: RowFactory[_T], /) -> list[_T]: ...


class KeySpan(NamedTuple):
    """The part of a key that may have a predecessor: the sequences between two bounds, both excluded.

    Up to ``after`` the key is known to have no living row that could come before others but the caller's own. Dead rows
    count from the key's beginning.
    """

    key_id: KeyId
    after: int
    before: int


class KeyRequest(NamedTuple):
    """How many ``rows`` of a key to lease, lowest sequences first. As in a `KeySpan`, it has none up to ``after``."""

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
    """What a claim leased, and what it saw.

    ``predecessors`` are the keys of these rows of which an unresolved row with a lower sequence is neither among them
    nor in hand, with the first of those; replayed rows do not count. None says that the store did not look: the claim
    has no term, and so promises no order; it was not asked to find them; or the store finds them by `predecessors`
    alone. Asking later is as good: what was to be seen before is still there then, or resolved. The rows are made when
    they are asked for: the rest is known at once, so that the next claim need not wait for them.
    """

    count: int
    bytes: int
    """Of their payloads in memory."""
    last: Position | None
    """The last one's place."""
    recovered: bool
    """Whether the lease before ended without an outcome for any of them."""
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
        """Rows that are made already, in the order of their places."""

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
    """How a leased row is put off (``delay`` seconds from now) or given up (``dead``). ``refund`` gives the attempt of
    this lease back."""

    id: RowId
    token: UUID
    error: str
    delay: float
    refund: bool
    dead: bool


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a row ended. ``attempts`` tells which lease did it: every later one has counted a further attempt."""

    published: bool
    attempts: int
    replays: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Tick:
    """The store's clock, and markers of what is under way.

    While a transaction that may have stamped a row is neither committed nor rolled back, it is among ``uncommitted`` by
    a marker; one that may have drawn a sequence of the table is among ``writers``. The two sets may be equal. A marker
    is never used again.
    """

    now: datetime
    uncommitted: frozenset[Marker]
    writers: frozenset[Marker]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a store can do on the way by which it is reached. A relay delivers without any of it."""

    pooled: bool = False
    """A transaction pooler is in the way: no session of the relay is its own."""
    session_locks: bool
    """A leader that has gone is replaced at once, because its session's lock went with it; otherwise after its
    takeover time."""
    wakeups: Literal["push", "poll"]
    """The database pushes a hint when a message is committed. Otherwise hints come from the store's own polling, or
    not at all, and a relay finds messages by its ``poll_interval``."""
    transaction_start_time: bool
    """``created_at`` is when the transaction began that wrote a row; otherwise when the row was written."""
    advisory_key_locks: bool
    """Writers can take turns at one key without waiting for writers of any other."""


class Election(Protocol):
    """The leadership of one table. Methods are called one at a time."""

    async def campaign(self) -> int | None:
        """Try to become the leader without waiting for the present one; the new, higher term if it worked.

        None says that somebody else leads. Where nobody could, because the record of the leadership is gone, it raises
        `StorageError`.
        """
        ...

    async def heartbeat(self, term: int) -> bool:
        """Say that the leader lives; false when the term is over. `StorageError` when its record is gone."""
        ...

    async def resign(self, term: int) -> None:
        """Give the leadership up. Never touches a newer term."""
        ...


class Store(Protocol):
    """Every method is one atomic step, bounded in time, and raises `StorageError` when it did not happen or may not
    have happened. The store's clock alone decides what is due and which lease is void. Safe for use by many tasks."""

    async def open(self, tables: Sequence[TableName]) -> None:
        """Connect, and check that each table can be served. Raises with the command that mends what is wrong."""
        ...

    async def close(self) -> None:
        """Let go of everything, waiting no longer than a few seconds. Can be repeated."""
        ...

    def abort(self) -> None:
        """End every call in progress with an error, at once."""
        ...

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        """Lease due rows in the order of their places and count an attempt for each. The lease comes first: their
        content may be read once it has taken effect, by the same token. What comes before them is looked for in the
        state of the table that they were taken from, or in a later one. Raises `ContentUnreadable` when content cannot
        be read; a store that can always read it never does."""
        ...

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        """The same for the given keys, each key's lowest sequences first and at most so many of it. What
        comes before them is looked for in any case, or None is answered."""
        ...

    async def undo_claim(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> int:
        """Release what a claim of unknown outcome may have leased, attempts refunded. If it was one of given keys,
        those, as they were given to `claim_keys`; the rows are looked for where the claim took them."""
        ...

    async def predecessors(
        self, table: TableName, spans: Sequence[KeySpan], view: View
    ) -> dict[KeyId, Predecessor]:
        """The first unresolved row of each span that is not the viewer's own. Replayed rows come before nobody:
        they count only in a span up to `LAST_SEQUENCE`, which asks for what a key could be followed for, and if they
        are due and free."""
        ...

    async def read_content(self, table: TableName, row_id: RowId) -> None:
        """Read the content of one row, as a claim would, and do nothing with it. Raises `ContentUnreadable` when that
        cannot be done; a store that can always read it never does."""
        ...

    async def position_after(self, table: TableName, since: Position, rows: int) -> Position | None:
        """The place that is so many due rows on from another, whoever has them; None when there are not as many."""
        ...

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        """Mark (or delete) rows as acknowledged; the leases that were lost, of whose rows nothing was written."""
        ...

    async def fail(self, table: TableName, failures: Sequence[Failure]) -> set[Lease]:
        """Put rows off or give them up; the leases that were lost."""
        ...

    async def release(self, table: TableName, leases: Sequence[Lease], *, restamp: bool) -> set[Lease]:
        """Give rows back undispatched, attempts refunded; the leases that were lost. With ``restamp`` they become
        due as of now, so that other relays, which may have read past them, see them."""
        ...

    async def resolutions(self, table: TableName, ids: Collection[RowId]) -> dict[RowId, Resolution]:
        """Those of the rows that are published or dead. Rows that are pending, leased or gone are not among them."""
        ...

    async def locked_rows(self, table: TableName, ids: Collection[RowId]) -> set[RowId]:
        """Those of the rows that somebody else keeps locked at this moment: to write them would have to wait."""
        ...

    async def tick(self, table: TableName) -> Tick:
        """The clock, and who may still commit rows, as of one moment."""
        ...

    async def end_stuck_sessions(self, table: TableName, older_than: float) -> list[int]:
        """End sessions of relays that have been sending rows to a frozen process for so many seconds; their ids."""
        ...

    def election(self, table: TableName) -> Election:
        """The leadership of a table."""
        ...

    def listen(self, tables: Collection[TableName], callback: Callable[[TableName | None], None]) -> None:
        """Call back, from now on, whenever a wake-up hint for one of the tables arrives, and with None when hints may
        have been missed. Hints may be late or lost. Replaces what was listened to before; may come before `open`."""
        ...

    async def keep_listening(self) -> None:
        """See to it that hints can arrive; called now and then by relays that hold no elections. Once it has returned,
        no hint of a message that is committed later is missed, unless the callback is told so."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do; known for sure once it is open."""
        ...
