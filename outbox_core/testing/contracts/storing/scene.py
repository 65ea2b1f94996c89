"""A store at work, and short ways to say what happens to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import anyio

from outbox_core.errors import StorageError
from outbox_core.outbox import Outbox
from outbox_core.store import (
    Claim,
    Election,
    Failure,
    KeyId,
    KeySpan,
    Lease,
    Leased,
    LeasedRow,
    Predecessor,
    Store,
    View,
)
from outbox_core.testing.contracts.driving import expect

if TYPE_CHECKING:
    from outbox_core.message import Message
    from outbox_core.record import StoredMessage
    from outbox_core.testing.contracts.storing.database import Database

NIL: Final = UUID(int=0)
NONE: Final[frozenset[object]] = frozenset()
LONG: Final = 30.0
"""A lease that does not end during a test."""
PATIENCE: Final = 10.0
_PAUSE: Final = 0.02


def equal(actual: object, wanted: object, what: str) -> None:
    """Fail the test, with both values, unless they are equal."""
    expect(actual == wanted, f"{what}: expected {wanted!r}, got {actual!r}")


def key_id(key: str, tenant: UUID = NIL) -> KeyId:
    return (tenant, key)


def ids(rows: Sequence[LeasedRow]) -> list[UUID]:
    """The ``event_id`` of each row."""
    return [row.message.meta.event_id for row in rows]


def leases(rows: Sequence[LeasedRow]) -> list[Lease]:
    return [row.lease for row in rows]


def failure(row: LeasedRow, *, delay: float = 0.0, refund: bool = False, dead: bool = False) -> Failure:
    return Failure(row.id, row.token, "PROVIDER.TEST refused", delay, refund, dead)


def view(own_tokens: Sequence[UUID] = (), *, dead_hold_keys: bool = False) -> View:
    """A relay that knows of no rows but those under its own tokens."""
    return View(LONG, own_tokens, dead_hold_keys=dead_hold_keys)


class Scene:
    """One store that leads its table, and short ways to use it."""

    def __init__(self, database: Database, store: Store, election: Election, term: int) -> None:
        self.database = database
        self.store = store
        self.election = election
        self.term = term
        self.table = database.table
        self.outbox = Outbox(database.table, hint=False)

    async def write(self, *messages: Message) -> list[int]:
        """Commit messages; their sequences."""
        async with self.database.transaction() as tx:
            return await self.outbox.enqueue_many(tx, messages)

    async def stored(self, message: Message) -> StoredMessage:
        async with self.database.transaction() as tx:
            found = await self.outbox.get(tx, message.event_id, payload=True)
        if found is None:
            raise AssertionError(f"the row of {message.topic} is gone")
        return found

    async def is_gone(self, message: Message) -> bool:
        async with self.database.transaction() as tx:
            return await self.outbox.get(tx, message.event_id) is None

    def terms(self, **changes: Any) -> Claim:
        """A claim's terms: plenty of everything unless said otherwise."""
        given: dict[str, Any] = {
            "token": uuid4(),
            "term": self.term,
            "limit": 100,
            "max_bytes": 1 << 20,
            "lock_ttl": LONG,
        }
        return Claim(**(given | changes))

    async def predecessors(self, claim: Claim, leased: Leased) -> Mapping[KeyId, Predecessor]:
        """Predecessors of the rows of a claim: those it answered with, or those found now if it did not search."""
        if leased.predecessors is not None:
            return leased.predecessors
        last: dict[KeyId, int] = {}
        for row in leased.rows():
            if row.key_id is not None:
                last[row.key_id] = max(last.get(row.key_id, 0), row.message.meta.sequence)
        spans = [KeySpan(key_id, 0, sequence) for key_id, sequence in last.items()]
        return await self.store.predecessors(self.table, spans, claim.view)

    async def claim(self, **changes: Any) -> list[LeasedRow]:
        return (await self.store.claim(self.table, self.terms(**changes))).rows()

    async def claim_one(self, **changes: Any) -> LeasedRow:
        rows = await self.claim(**changes)
        equal(len(rows), 1, "rows claimed")
        return rows[0]

    async def claim_when_due(self, **changes: Any) -> list[LeasedRow]:
        """Claim again and again until something comes."""
        with anyio.move_on_after(PATIENCE):
            while True:
                rows = await self.claim(**changes)
                if rows:
                    return rows
                await anyio.sleep(_PAUSE)
        raise AssertionError(f"nothing could be claimed for {PATIENCE:g} s")


@asynccontextmanager
async def another(database: Database) -> AsyncGenerator[Store]:
    """A further store that is open, and closed with the block."""
    store = database.make()
    await store.open([database.table])
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


@asynccontextmanager
async def at_work(database: Database, *, resigns: bool = True) -> AsyncGenerator[Scene]:
    """A store that is open and leads; it leaves with or without a resignation."""
    async with another(database) as store:
        election = store.election(database.table)
        # Without session locks a leader that did not resign is replaced when its time is over.
        patience = 0.0 if store.capabilities.session_locks else database.takeover + PATIENCE
        term = await _elected(election, patience)
        yield Scene(database, store, election, term)
        if resigns:
            with suppress(StorageError):  # of a session that was idle for too long
                await election.resign(term)


async def _elected(election: Election, patience: float) -> int:
    deadline = anyio.current_time() + patience
    while (term := await election.campaign()) is None:
        if anyio.current_time() >= deadline:
            raise AssertionError("the only candidate was not elected")
        await anyio.sleep(_PAUSE)
    return term
