"""Rows in flight: those of one table that are leased, from their claim until they are resolved, lost or abandoned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.store import RowId, position_of

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_core.meta import DispatchedMessage
    from outbox_core.relay.ordering.keys import Key
    from outbox_core.store import Claim, KeyId, Lease, Leased, Position, Predecessor


class Stage(IntEnum):
    """Where a delivery is. The part that takes a delivery over writes its stage."""

    CLAIMED = 1
    """Leased, and not yet in the order of its key."""
    WAITING = 2
    """Behind another delivery of its key."""
    READY = 3
    """Its turn: it waits for a slot and for the gate of its destination."""
    DISPATCHING = 4
    """With the dispatcher."""
    JUDGING = 5
    """Not answered by its deadline: whose fault that is has to be found out."""
    COMPLETING = 6
    """Its verdict has to be written."""
    DEFERRED = 7
    """The write of its verdict would hold up others."""


_CLAIMED: Final = Stage.CLAIMED  # for speed: the member of an enum is a slow attribute


class Delivery:
    """A leased row on its way through the relay, the same as no other.

    ``expires`` is when its lease counts as over, on the relay's own monotonic clock, counted from before the claim was
    sent. Made for every row, so it is written for speed.
    """

    __slots__ = ("due", "expires", "id", "key", "key_id", "message", "recovered", "stage", "token")

    def __init__(
        self,
        row_id: RowId,
        token: UUID,
        message: DispatchedMessage,
        due: float,
        key_id: KeyId | None,
        recovered: bool = False,
    ) -> None:
        self.id = row_id
        self.token = token
        self.message = message
        self.due = due
        """Its ``available_at``, in seconds since 1970."""
        self.key_id = key_id
        self.recovered = recovered
        """True when the lease before this one ended without an outcome: its owner crashed or froze, maybe over it."""
        self.expires = 0.0
        self.key: Key | None = None
        """Its key, while it is in the order of that."""
        self.stage = _CLAIMED

    @property
    def lease(self) -> Lease:
        return (self.id, self.token)

    @property
    def position(self) -> Position:
        return position_of(self.due, self.message.meta.sequence)


class Batch:
    """The rows of one claim. Its deliveries are made when they are first asked for: the rest is known at once, so that
    the next claim can be under way by then.

    ``keys`` are the keys the claim was for, with how many rows of each. ``full`` says that there may be more where it
    came from. ``predecessors`` has what comes before its rows in their keys. ``unreadable`` is why the content of rows
    could not be read, if they were leased without.
    """

    __slots__ = (
        "_deliveries",
        "_leased",
        "bytes",
        "claim",
        "count",
        "expires",
        "full",
        "keys",
        "last",
        "predecessors",
        "unreadable",
    )  # fmt: skip

    def __init__(
        self,
        claim: Claim,
        leased: Leased,
        keys: Mapping[KeyId, int],
        *,
        expires: float,
        full: bool = False,
    ) -> None:
        self.claim = claim
        self.keys = keys
        self.expires = expires
        self.full = full
        self.unreadable: Mapping[Delivery, BaseException] = {}
        self.count = leased.count
        self.bytes = leased.bytes
        self.last = leased.last
        self.predecessors = leased.predecessors or {}
        self._leased: Leased | None = leased
        self._deliveries: list[Delivery] = []

    def deliveries(self) -> list[Delivery]:
        """Its rows, in the order of their positions; made once."""
        if self._leased is not None:
            self._deliveries, self._leased = self._leased.rows(Delivery), None
            for delivery in self._deliveries:
                delivery.expires = self.expires
        return self._deliveries

    def keep(self, one: Delivery, before: Mapping[KeyId, Predecessor]) -> list[Delivery]:
        """Keep one delivery, before which ``before`` comes; the others, which are the batch's no longer."""
        others = [delivery for delivery in self.deliveries() if delivery is not one]
        self._deliveries = [one]
        self.count, self.bytes, self.last = 1, len(one.message.payload), one.position
        self.predecessors = {**self.predecessors, **before}
        self.full = False
        return others


class InFlight:
    """Every leased row of the table, and its stage. Bounds memory and leases: claims wait while there is no room."""

    def __init__(self, max_bytes: int) -> None:
        self.rows = 0
        self.bytes = 0
        self.unreadable: dict[Delivery, BaseException] = {}
        """Those whose content could not be read, with the reason."""
        self._deliveries: dict[Delivery, None] = {}
        self._rows_deferred = 0
        self._bytes_deferred = 0
        self._leases: dict[UUID, int] = {}
        self._unordered: set[RowId] = set()
        self._abandoned: dict[RowId, UUID] = {}
        self._max_bytes = max_bytes
        self._changed = anyio.Event()

    def add(self, batch: Batch) -> None:
        """The rows of one claim, before the next claim is sent."""
        if batch.count:
            self.rows += batch.count
            self.bytes += batch.bytes
            self._leases[batch.claim.token] = batch.count

    def opened(self, batch: Batch) -> list[Delivery]:
        """Make the deliveries of a batch that was added."""
        deliveries = batch.deliveries()
        self._deliveries.update(dict.fromkeys(deliveries))
        if batch.unreadable:
            self.unreadable.update(batch.unreadable)
        return deliveries

    def remove(self, gone: Sequence[Delivery]) -> None:
        """They are resolved, lost or abandoned: makes room, and wakes who waits for that."""
        token, count = None, 0
        for delivery in gone:
            self.bytes -= len(delivery.message.payload)
            if delivery.token is not token:  # those of one claim mostly come together
                self._let_go(token, count)
                token, count = delivery.token, 0
            count += 1
            self._deliveries.pop(delivery, None)
            if self._unordered:
                self._unordered.discard(delivery.id)
            if self.unreadable:
                self.unreadable.pop(delivery, None)
        self._let_go(token, count)
        self.rows -= len(gone)
        self._changed.set()

    def abandon(self, left: Iterable[Delivery]) -> None:
        """They will leave, and their leases stay: while rows of the same claim are in flight, these come before others
        of their keys."""
        self._abandoned.update((delivery.id, delivery.token) for delivery in left)

    def defer(self, deferred: Sequence[Delivery]) -> None:
        """The verdicts of these deliveries, and of no others, are deferred: they take no room."""
        self._rows_deferred = len(deferred)
        self._bytes_deferred = sum(len(delivery.message.payload) for delivery in deferred)
        self._changed.set()

    def mark_unordered(self, some: Iterable[Delivery]) -> None:
        """They go back and were never in the order of their keys: until that is on record, they may come before others
        that are claimed now."""
        self._unordered.update(delivery.id for delivery in some)

    @property
    def busy(self) -> int:
        """Rows that take room: all but those whose verdict is deferred."""
        return self.rows - self._rows_deferred

    def has_room(self, rows: int, *, shares: int = 1) -> bool:
        """Say whether at most ``rows`` are busy, with fewer bytes than ``shares`` times what it may have."""
        return self.busy <= rows and self.bytes - self._bytes_deferred < shares * self._max_bytes

    def tokens(self) -> list[UUID]:
        """Claims that still have rows here."""
        return list(self._leases)

    def unordered_ids(self) -> list[RowId]:
        """Rows of these claims that are not in the order of their keys."""
        return [*self._unordered, *self._abandoned]

    def by_stage(self) -> Counter[Stage]:
        """How many rows are in which stage."""
        found = Counter(delivery.stage for delivery in self._deliveries)
        found[Stage.CLAIMED] += self.rows - len(self._deliveries)
        return +found

    async def changed(self, at_most: float) -> bool:
        """Wait until a row has left or was deferred; false when none did within ``at_most`` seconds."""
        with anyio.move_on_after(at_most):
            await self._changed.wait()
        changed = self._changed.is_set()
        if changed:
            self._changed = anyio.Event()
        return changed

    def _let_go(self, token: UUID | None, count: int) -> None:
        if token is not None:
            left = self._leases[token] - count
            if left:
                self._leases[token] = left
            else:
                del self._leases[token]
                if self._abandoned:  # without the token the database knows who is leased, and until when
                    self._abandoned = {row: of for row, of in self._abandoned.items() if of != token}
