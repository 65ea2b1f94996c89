"""Two relays that both believe they lead one table. What they believe says only when to try: the database decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from outbox_core.meta import DispatchedMessage
from outbox_core.observer import LeaderGained, LeaderLost, LeaseLost, Published
from outbox_core.relay import Relay
from outbox_core.store import Claim, Election, KeyRequest, Leased
from outbox_core.stores.postgres.store import PostgresStore
from outbox_core.table import TableName
from tests.integration.relay.bench import TABLE, Bench
from tests.kit.observing import Heard
from tests.kit.settings import QUICK_POSTGRES
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio

PATIENT: dict[str, Any] = QUICK_POSTGRES | {"dispatch_timeout": 15.0, "lock_ttl": 30.0, "takeover": 4.0}
"""No lease ends by itself in the time of a test."""
KEYS = ("a", "b", "c")
EVERYTHING = "SELECT * FROM shop.orders_outbox ORDER BY sequence"


@dataclass(frozen=True, slots=True)
class Unshaken:
    """An election that is never lost again: what another relay does is not heard of. With a ``term``, which is somebody
    else's, it is not even held."""

    real: Election
    term: int | None = None

    async def campaign(self) -> int | None:
        return await self.real.campaign() if self.term is None else self.term

    async def heartbeat(self, term: int) -> bool:
        return True

    async def resign(self, term: int) -> None:
        if self.term is None:
            await self.real.resign(term)


@dataclass(frozen=True, slots=True)
class Took:
    """In which term a claim was made, and the keys of the rows that it took."""

    term: int | None
    keys: tuple[str | None, ...] = ()


class Watched:
    """A store that remembers every claim."""

    def __init__(self, dsn: str, held: Callable[[Election], Election]) -> None:
        self._store = PostgresStore(dsn, timeout=PATIENT["database_timeout"], takeover=PATIENT["takeover"])
        self._held = held
        self.claims: list[Took] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def election(self, table: TableName) -> Election:
        return self._held(self._store.election(table))

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        return self._noted(claim, await self._store.claim(table, claim))

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        return self._noted(claim, await self._store.claim_keys(table, claim, keys))

    def _noted(self, claim: Claim, leased: Leased) -> Leased:
        self.claims.append(Took(claim.term, tuple(row.message.meta.key for row in leased.rows())))
        return leased


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that the broker has, and who brought it."""

    sender: Leader
    key: str | None
    sequence: int


class Leader:
    """A relay, what it believes, and what it has with the broker, which takes nothing before the ``gate`` is open."""

    def __init__(
        self,
        bench: Bench,
        arrivals: list[Arrival],
        held: Callable[[Election], Election] = lambda real: real,
        **settings: Any,
    ) -> None:
        self.heard = Heard()
        self.store = Watched(bench.dsn, held)
        self.gate = asyncio.Event()
        self.inside = 0
        self._arrivals = arrivals
        self.relay = Relay(
            lambda: self.store,
            table=TABLE,
            dispatcher=self._dispatch,
            observers=[self.heard],
            cleaner=None,
            monitor=None,
            **(PATIENT | settings),
        )

    @property
    def term(self) -> int | None:
        """The term in which it believes to lead, by what it tells."""
        changes = [event for event in self.heard.events if isinstance(event, LeaderGained | LeaderLost)]
        return changes[-1].term if changes and isinstance(changes[-1], LeaderGained) else None

    @property
    def taken(self) -> list[str | None]:
        """The keys of the rows that its claims took."""
        return [key for claim in self.store.claims for key in claim.keys]

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        await self.relay.start()
        try:
            await until(lambda: self.term is not None, 10.0)
            yield
        finally:
            await self.relay.stop(1.0)

    async def _dispatch(self, message: DispatchedMessage) -> None:
        self.inside += 1
        await self.gate.wait()
        await asyncio.sleep(0)
        self._arrivals.append(Arrival(self, message.meta.key, message.meta.sequence))


async def depose(bench: Bench) -> None:
    """End the session that holds the leader's lock, so that another relay is elected."""
    ended = await bench.connection.fetch(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    assert [row[0] for row in ended] == [True]


async def every_key_is_in_order(bench: Bench, arrivals: Sequence[Arrival]) -> None:
    """Of every key all messages have arrived, for the first time in the order in which they were enqueued."""
    for key in KEYS:
        written = await bench.connection.fetch(
            "SELECT sequence FROM shop.orders_outbox WHERE key = $1 ORDER BY sequence", key
        )
        first_times = dict.fromkeys(arrival.sequence for arrival in arrivals if arrival.key == key)
        assert list(first_times) == [row["sequence"] for row in written]


async def test_a_leader_that_does_not_hear_of_its_successor_claims_nothing(bench: Bench) -> None:
    """Although it asks, and there are rows for it to take: the other one has not claimed them all."""
    arrivals: list[Arrival] = []
    old, new = Leader(bench, arrivals, Unshaken), Leader(bench, arrivals, batch_size=1)
    old.gate.set()
    async with old.leading():
        await depose(bench)
        async with new.leading():
            for key in KEYS:
                await bench.enqueue(*range(50), key=key)
            before = len(old.store.claims)
            await until(lambda: new.inside > 0 and len(old.store.claims) >= before + 5)
            assert (await bench.states())["pending"] > 0
            assert (old.term, new.term) == (1, 2)
            assert not old.taken
            new.gate.set()
            assert await bench.settled() == {"published": 150}
            assert (old.term, new.term) == (1, 2)
            await old.relay.stop(1.0)
            leader = await bench.connection.fetchrow("SELECT term, holder FROM shop.outbox_leader")
            assert leader is not None
            assert (leader["term"], leader["holder"] is None) == (2, False)
    assert set(old.store.claims[before:]) == {Took(1)}
    assert [arrival.sender for arrival in arrivals] == [new] * 150
    await every_key_is_in_order(bench, arrivals)
    assert all(row["attempts"] == 1 for row in await bench.rows())


async def test_what_a_leader_that_does_not_hear_of_its_successor_writes_too_late_is_refused(
    bench: Bench,
) -> None:
    """It still has rows of its own term with the broker, and by then they are the other one's."""
    arrivals: list[Arrival] = []
    old, new = Leader(bench, arrivals, Unshaken), Leader(bench, arrivals)
    new.gate.set()
    async with old.leading():
        await bench.enqueue(*range(4), key=KEYS[0])
        await until(lambda: old.inside == 1 and len(old.taken) == 4)
        await depose(bench)
        async with new.leading():
            await bench.connection.execute(
                "UPDATE shop.orders_outbox SET locked_at = locked_at - interval '1 minute'"
            )
            assert await bench.settled() == {"published": 4}
            published = await bench.connection.fetch(EVERYTHING)
            assert (old.term, new.term) == (1, 2)
            old.gate.set()
            await until(lambda: bool(old.heard.of(LeaseLost) or old.heard.of(Published)))
    assert await bench.connection.fetch(EVERYTHING) == published
    assert {row["attempts"] for row in published} == {2}
    assert not old.heard.of(Published)
    assert not new.heard.of(LeaseLost)
    assert [arrival.sender for arrival in arrivals[:5]] == [new, new, new, new, old]
    await every_key_is_in_order(bench, arrivals)


async def test_two_leaders_of_one_term_have_no_row_in_common(bench: Bench) -> None:
    """No term tells them apart. Each row is leased to one of them, and what stands behind it in its key waits."""
    arrivals: list[Arrival] = []
    one = Leader(bench, arrivals, batch_size=1)
    other = Leader(bench, arrivals, lambda real: Unshaken(real, term=1), batch_size=1)

    def met() -> bool:
        """Both have messages with the broker, which takes none yet, and both have claimed rows of one key."""
        return one.inside > 0 < other.inside and KEYS[0] in one.taken and KEYS[0] in other.taken

    async with one.leading(), other.leading():
        for key in (KEYS[0], None):
            await bench.enqueue(*range(100), key=key)  # more than one of them takes in hand
        await until(met, 10.0)
        assert (one.term, other.term) == (1, 1)
        one.gate.set()
        other.gate.set()
        for key in (*KEYS, None) * 10:
            await bench.enqueue(*range(10), key=key)
        assert await bench.settled() == {"published": 600}
        assert (one.term, other.term) == (1, 1)
    await every_key_is_in_order(bench, arrivals)
    rows = await bench.rows()
    assert sorted(arrival.sequence for arrival in arrivals) == [row["sequence"] for row in rows]
    assert {arrival.sender for arrival in arrivals} == {one, other}
    assert all(row["attempts"] == 1 for row in rows)
    assert not one.heard.of(LeaseLost) + other.heard.of(LeaseLost)
