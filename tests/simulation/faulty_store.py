"""A store as one simulated process sees it: slow, failing, cut off, or done with what it seemed to fail at."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from math import inf
from random import Random
from typing import TypeVar
from uuid import UUID

import anyio

from outbox_core.errors import StorageTimeout, StorageUnavailable
from outbox_core.store import (
    Capabilities,
    Claim,
    Election,
    Failure,
    KeyId,
    KeyRequest,
    KeySpan,
    Lease,
    Leased,
    Position,
    Predecessor,
    Resolution,
    RowId,
    Tick,
    View,
)
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from tests.simulation.record import Record
from tests.simulation.sight import Sight

T = TypeVar("T")
MAX_CLAIMS_PER_SECOND = 400
"""Of one table. Looking out for more work after some was done comes to less; a loop that gets nowhere to more."""
_UNSEARCHED = 7
"""One in this many claims answers without predecessors, as a store may that finds them in a step of their own."""
KINDS = ("error before", "error after", "hang", "hang after", "slow")


class FaultyStore:
    """Wraps a client of the in-memory store, injects faults and checks what the store is asked against the rules."""

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def __init__(
        self,
        inner: MemoryStore,
        record: Record,
        random: Random,
        *,
        timeout: float,
        rate: float,
        shields: bool,
        sight: Sight,
        search_seconds: float,
    ) -> None:
        self.inner = inner
        self.rate = rate
        self.cut_off = False
        """The network is gone: nothing arrives and nothing is answered."""
        self.stop_asked_at = inf
        self.tokens: set[UUID] = set()
        self._record = record
        self._answers = 0
        self._claims: Counter[tuple[TableName, int]] = Counter()
        self._random = random
        self._timeout = timeout
        self._shields = shields
        self._sight = sight
        self._search_seconds = search_seconds

    async def call(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        """One call, with the fault that befalls it."""
        with anyio.CancelScope(shield=self._shields):
            return await self._call(name, operation)
        raise AssertionError("unreachable: the scope is never cancelled by itself")

    async def _call(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        random = self._random
        fault = random.choice(KINDS) if random.random() < self.rate else ""
        latency = random.uniform(0.0002, 0.002)
        if self.cut_off:
            fault = "cut off"
        if fault:
            self._record.counts[f"store: {fault}"] += 1
            self._record.say(f"fault {fault} in {name}")
        if fault in ("hang", "cut off"):
            await asyncio.sleep(self._timeout)
            raise StorageTimeout(f"{name} was not answered")
        if fault == "slow":
            latency = random.uniform(0.1, self._timeout * 0.45)
        await asyncio.sleep(latency)
        if fault == "error before":
            raise StorageUnavailable(f"{name} did not arrive")
        result = await operation()
        if fault == "hang after":
            await asyncio.sleep(self._timeout - latency)
        elif random.random() < 0.3 or fault:
            await asyncio.sleep(latency)
        if fault in ("error after", "hang after") or self.cut_off:
            raise StorageTimeout(f"the answer to {name} was lost")
        return result

    async def open(self, tables: Sequence[TableName]) -> None:
        await self.call("open", lambda: self.inner.open(tables))

    async def close(self) -> None:
        await self.inner.close()

    def abort(self) -> None:
        self.inner.abort()

    def election(self, table: TableName) -> FaultyElection:
        return FaultyElection(self, self.inner.election(table))

    def listen(self, tables: Collection[TableName], callback: Callable[[TableName | None], None]) -> None:
        self.inner.listen(tables, callback)

    async def keep_listening(self) -> None:
        await self.call("keep_listening", self.inner.keep_listening)

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        return await self._leasing("claim", table, claim, lambda: self.inner.claim(table, claim))

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        self._record.counts["claim of keys above a watermark"] += any(request.after for request in keys)
        return await self._leasing(
            "claim_keys", table, claim, lambda: self.inner.claim_keys(table, claim, keys)
        )

    async def _leasing(
        self, name: str, table: TableName, claim: Claim, lease: Callable[[], Awaitable[Leased]]
    ) -> Leased:
        self._record.counts[name] += 1
        second = (table, int(self._record.now()))
        self._claims[second] += 1
        if self._claims[second] == MAX_CLAIMS_PER_SECOND:
            self._record.violated("calm", f"{MAX_CLAIMS_PER_SECOND} claims in one second")
        if self._record.now() > self.stop_asked_at:
            self._record.violated("O15", f"a {name} after stop()")
        if claim.token in self.tokens:
            self._record.violated("O6", f"a token was used for two claims: {name}")
        self.tokens.add(claim.token)

        async def leased() -> Leased:
            found = await lease()
            term = self.inner.database.leadership(table).term
            if found.count and claim.term is not None and claim.term != term:
                self._record.violated("O17", f"a claim in term {claim.term} took rows in term {term}")
            self._sight.leased(table, self.inner.table(table), found.rows())
            self._answers += 1
            if self._answers % _UNSEARCHED == 0:
                found = replace(found, predecessors=None)
            if found.count:
                self._record.say(f"{name} {table} {[row.message.meta.sequence for row in found.rows()]}")
            return found

        return await self.call(name, leased)

    async def undo_claim(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> int:
        self._record.counts["undo_claim"] += 1
        return await self.call("undo_claim", lambda: self.inner.undo_claim(table, claim, keys))

    async def predecessors(
        self, table: TableName, spans: Sequence[KeySpan], view: View
    ) -> dict[KeyId, Predecessor]:
        async def found() -> dict[KeyId, Predecessor]:
            await asyncio.sleep(self._search_seconds)
            return await self.inner.predecessors(table, spans, view)

        self._record.counts["search above a watermark"] += any(span.after for span in spans)
        return await self.call("predecessors", found)

    async def read_content(self, table: TableName, row_id: RowId) -> None:
        await self.call("read_content", lambda: self.inner.read_content(table, row_id))

    async def position_after(self, table: TableName, since: Position, rows: int) -> Position | None:
        return await self.call("position_after", lambda: self.inner.position_after(table, since, rows))

    async def publish(self, table: TableName, leases: Sequence[Lease], *, delete: bool) -> set[Lease]:
        return await self._fenced(
            "publish", table, leases, lambda: self.inner.publish(table, leases, delete=delete)
        )

    async def fail(self, table: TableName, failures: Sequence[Failure]) -> set[Lease]:
        leases = [(failure.id, failure.token) for failure in failures]
        return await self._fenced("fail", table, leases, lambda: self.inner.fail(table, failures))

    async def release(self, table: TableName, leases: Sequence[Lease], *, restamp: bool) -> set[Lease]:
        return await self._fenced(
            "release", table, leases, lambda: self.inner.release(table, leases, restamp=restamp)
        )

    async def _fenced(
        self,
        name: str,
        table: TableName,
        leases: Sequence[Lease],
        write: Callable[[], Awaitable[set[Lease]]],
    ) -> set[Lease]:
        async def written() -> set[Lease]:
            rows = {row.id: row for row in self.inner.table(table).rows.values()}
            good = {lease for lease in leases if lease[0] in rows and rows[lease[0]].lock_token == lease[1]}
            written = {row_id for row_id, _ in good}
            stale = [rows[row_id] for row_id, _ in leases if row_id in rows and row_id not in written]
            before = repr(stale)
            lost = await write()
            if lost != set(leases) - good or repr(stale) != before:
                self._record.violated("O5", f"a stale {name} was accepted, or a good one refused")
            if len(good) < len(leases):
                self._record.counts["stale write refused"] += len(leases) - len(good)
            if any(row.lock_token is not None for row in stale):
                self._record.counts["stale write against another's lease refused"] += 1
            self._record.say(f"{name} {table} {len(leases) - len(lost)} of {len(leases)}")
            return lost

        return await self.call(name, written)

    async def resolutions(self, table: TableName, ids: Collection[RowId]) -> dict[RowId, Resolution]:
        found = await self.call("resolutions", lambda: self.inner.resolutions(table, ids))
        self._record.counts["written before, answer lost"] += len(found)
        return found

    async def locked_rows(self, table: TableName, ids: Collection[RowId]) -> set[RowId]:
        return await self.call("locked_rows", lambda: self.inner.locked_rows(table, ids))

    async def tick(self, table: TableName) -> Tick:
        return await self.call("tick", lambda: self.inner.tick(table))

    async def end_stuck_sessions(self, table: TableName, older_than: float) -> list[int]:
        return await self.call("patrol", lambda: self.inner.end_stuck_sessions(table, older_than))


class FaultyElection:
    """The same for elections."""

    def __init__(self, store: FaultyStore, inner: Election) -> None:
        self._store = store
        self._inner = inner

    async def campaign(self) -> int | None:
        return await self._store.call("campaign", self._inner.campaign)

    async def heartbeat(self, term: int) -> bool:
        return await self._store.call("heartbeat", lambda: self._inner.heartbeat(term))

    async def resign(self, term: int) -> None:
        await self._store.call("resign", lambda: self._inner.resign(term))
