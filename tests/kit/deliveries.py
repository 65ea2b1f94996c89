"""The engine's own objects, built in one place: leased rows, claims and what they answer, breakers and destinations.

Tests use the names of this module. The classes behind them may change theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID, uuid4

from outbox_core.dispatcher import Dispatcher
from outbox_core.meta import DispatchedMessage, Meta
from outbox_core.relay.dispatching.breaker import Breaker
from outbox_core.relay.dispatching.destinations import Destination, Destinations
from outbox_core.relay.dispatching.pool import Worker
from outbox_core.relay.dispatching.slots import Slots
from outbox_core.relay.in_flight import Batch, Delivery, InFlight
from outbox_core.relay.ordering.keys import Keys
from outbox_core.relay.settings import RelaySettings
from outbox_core.relay.shared import Observers, Shared
from outbox_core.runtime.backoff import Backoff
from outbox_core.runtime.mailbox import Mailbox
from outbox_core.runtime.shutdown import Shutdown
from outbox_core.store import BEGINNING, END, Claim, KeyId, Leased, LeasedRow, Position, Predecessor, Store
from outbox_core.stores.memory import MemoryStore
from tests.kit.brokers import SilentBroker

NIL: Final = UUID(int=0)
START: Final = datetime(2030, 1, 1, tzinfo=UTC)


def key_id(key: str = "k") -> KeyId:
    """A key of the only tenant."""
    return (NIL, key)


def message(
    sequence: int = 1,
    key: str | None = None,
    *,
    event_id: UUID | None = None,
    attempts: int = 1,
    replays: int = 0,
    payload: bytes = b"",
    table: str = "public.t",
) -> DispatchedMessage:
    """A message as a dispatcher gets it."""
    meta = Meta(table, NIL, "a.b.v1", event_id or uuid4(), sequence, attempts, replays, key, {}, START)
    return DispatchedMessage(meta, payload, "application/json")


def delivery(
    sequence: int = 1,
    key: str | None = None,
    *,
    row_id: UUID | None = None,
    token: UUID | None = None,
    attempts: int = 1,
    replays: int = 0,
    payload: bytes = b"",
    recovered: bool = False,
    table: str = "public.t",
) -> Delivery:
    """A leased row, by default with an id and a token of its own."""
    row_id = row_id or uuid4()
    content = message(
        sequence, key, event_id=row_id, attempts=attempts, replays=replays, payload=payload, table=table
    )
    return Delivery(row_id, token or uuid4(), content, 0.0, None if key is None else key_id(key), recovered)


def leased_again(delivery: Delivery) -> Delivery:
    """The same row under another token."""
    old = delivery
    return Delivery(old.id, uuid4(), old.message, old.due, old.key_id, old.recovered)


def claim(
    *,
    token: UUID | None = None,
    term: int | None = None,
    limit: int = 10,
    max_bytes: int = 1_000_000,
    lock_ttl: float = 60.0,
    since: Position = BEGINNING,
    until: Position = END,
    held_keys: Sequence[KeyId] = (),
    blocked_topics: Sequence[str] = (),
    own_tokens: Sequence[UUID] = (),
    unordered_ids: Sequence[UUID] = (),
    dead_hold_keys: bool = False,
    without_content: bool = False,
    find_predecessors: bool = True,
) -> Claim:
    """The terms of a claim, by default with a token of its own and without a leader's term."""
    return Claim(
        token=token or uuid4(),
        term=term,
        limit=limit,
        max_bytes=max_bytes,
        lock_ttl=lock_ttl,
        since=since,
        until=until,
        held_keys=held_keys,
        blocked_topics=blocked_topics,
        own_tokens=own_tokens,
        unordered_ids=unordered_ids,
        dead_hold_keys=dead_hold_keys,
        without_content=without_content,
        find_predecessors=find_predecessors,
    )


def leased(deliveries: Sequence[Delivery], predecessors: Mapping[KeyId, Predecessor] | None = None) -> Leased:
    """The answer to a claim that leased these rows."""
    rows = [
        LeasedRow(each.id, each.token, each.message, each.due, each.key_id, each.recovered)
        for each in deliveries
    ]
    return Leased.of(rows, predecessors or {})


def batch(
    claim: Claim, leased: Leased, *, keys: Mapping[KeyId, int] | None = None, full: bool = False
) -> Batch:
    """What one claim leased, of given keys if there are any. Its leases do not expire during a test."""
    return Batch(claim, leased, keys or {}, expires=1e9, full=full)


def in_flight(max_bytes: int = 1_000_000) -> InFlight:
    """What a table's relay has in flight: nothing yet."""
    return InFlight(max_bytes)


def key_order() -> Keys:
    """The order of keys in a relay that has seen none."""
    return Keys()


def breaker(patience: float = 30.0) -> Breaker:
    """A closed breaker with the default backoff, without jitter."""
    return Breaker(Backoff(jitter=0.0), patience)


def destination(dispatcher: Dispatcher | None = None, its_breaker: Breaker | None = None) -> Destination:
    """A destination whose changes are not reported."""
    return Destination(
        dispatcher or SilentBroker(), its_breaker or breaker(), subscribers=(), opened=Mailbox()
    )


async def half_open(where: Destination) -> None:
    """The pause of an open destination is over, and its probe was answered if it has one."""
    await where._half_open()


def start(where: Destination, row: Delivery, now: float = 0.0) -> bool:
    """Have a row dispatched, if the gate lets it in."""
    if not where.gate.enter(row, now):
        return False
    worker = Worker()
    worker.deliveries, worker.since = (row,), now
    where.pools.append(cast("Any", SimpleNamespace(workers={worker: None})))
    return True


def end(where: Destination, row: Delivery) -> None:
    """The dispatch of a row ended."""
    where.pools[:] = [pool for pool in where.pools if row not in next(iter(pool.workers)).deliveries]
    where.gate.leave(row)


class Woken:
    """Counts how often a pool that waits for a slot or at a gate is woken."""

    def __init__(self) -> None:
        self.party: object = self
        self.slots = 0
        self.times = 0

    def wake(self) -> None:
        self.times += 1


def destinations(root: Any, patience: float = 30.0) -> Destinations:
    """The destinations behind a dispatcher, with a backoff of 1 to 60 s and without jitter."""
    return Destinations(root, Backoff(1.0, 60.0, 0.0, lambda: 0.0), patience)


def shared(store: Store | None = None, root: Any = None, **settings: Any) -> Shared:
    """What the tables of a run have in common: a store in memory, and a dispatcher that does nothing."""
    chosen = RelaySettings(**settings)
    return Shared(
        store=store or MemoryStore(),
        settings=chosen,
        backoff=Backoff(jitter=0.0),
        destinations=destinations(root or SilentBroker()),
        slots=Slots(chosen.concurrency, shared=False),
        observers=Observers(()),
        shutdown=Shutdown(),
    )
