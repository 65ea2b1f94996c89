"""Applications that write messages: in short and long transactions, with rollbacks, savepoints, delays and keys.

Most wait for others that write the same key. Hasty ones do not, and may commit a message long after later ones of its
key were delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from random import Random
from uuid import UUID

from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from tests.simulation.plan import Plan
from tests.simulation.record import Record
from tests.simulation.sight import Sight


@dataclass
class Written:
    """A message as its writer knows it."""

    table: TableName
    sequence: int
    key: str | None
    kind: str
    due: float
    written: int
    """When its sequence was drawn, and when it was committed, on a clock that goes on with each such moment."""
    committed: int = 0


@dataclass
class Writers:
    store: MemoryStore
    plan: Plan
    tables: list[TableName]
    record: Record
    random: Random
    sight: Sight
    committed: dict[tuple[str, UUID], Written] = field(default_factory=dict)
    rolled_back: set[tuple[str, UUID]] = field(default_factory=set)
    _killers: int = 0
    _moments: Iterator[int] = field(default_factory=lambda: count(1))

    async def write(self, until: float) -> None:
        """One writer: transaction after transaction, each over before ``until``."""
        while self.record.now() < until - 1.0:
            table = self.random.choice(self.tables)
            # One key for a whole transaction: two that lock several in different order would wait for each other.
            key = f"key-{self.random.randrange(self.plan.keys)}" if self.random.random() < 0.6 else None
            if key is not None and self.plan.hasty and self.random.random() < 0.5:
                key = f"own-{next(self._moments)}"  # where nothing waits, so that what is written is dispatched soon
            await self._transaction(table, key, until)
            await asyncio.sleep(self.random.expovariate(1.2))

    async def _transaction(
        self, table: TableName, key: str | None, until: float, *, patient: bool = False
    ) -> None:
        random = self.random
        outbox = Outbox(table, hint=False)
        fresh: dict[UUID, Written] = {}
        within: dict[UUID, Written] = {}
        undone: set[UUID] = set()
        hasty = self.plan.hasty and not patient and key is not None and random.random() < 0.5
        overtaken = hasty and random.random() < 0.5
        long = random.random() < (0.4 if hasty else 0.08)
        lasts = random.uniform(0.5, 12.0) if long else random.uniform(0.0, 0.01)
        try:
            async with self.store.transaction() as tx:
                await self._enqueue(outbox, tx, key, fresh, hasty=hasty)
                if random.random() < 0.1:
                    try:
                        async with tx.savepoint():
                            await self._enqueue(outbox, tx, key, within, hasty=hasty)
                            undone.update(within)
                            raise LookupError
                    except LookupError:
                        self.record.counts["savepoint rolled back"] += 1
                if lasts > 0.5:
                    self.record.counts["long transaction"] += 1
                if overtaken:
                    self.record.counts["two open transactions of a key"] += 1
                    await self._transaction(table, key, until, patient=True)
                left = max(until - self.record.now() - 0.5, 0.0)
                if overtaken and random.random() < 0.7:
                    await self._until_overtaken(fresh.values(), min(3.0, left))
                else:
                    await asyncio.sleep(min(lasts, left))
                if random.random() < 0.12:
                    raise LookupError
        except LookupError:
            self.record.counts["rolled back"] += 1
            undone.update(fresh)
            fresh = {}
        moment = next(self._moments)
        for event_id, message in fresh.items():
            message.committed = moment
            self.committed[str(table), event_id] = message
        self._count_late(table, fresh)
        self.rolled_back.update((str(table), event_id) for event_id in undone)
        self.record.say(f"committed {[message.sequence for message in fresh.values()]} of {table}")
        if fresh and random.random() < 0.4:
            self.store.database.notify(table)
        if overtaken and random.random() < 0.7:
            await self._transaction(table, key, until, patient=True)  # nobody who comes now may be before it

    async def _until_overtaken(self, fresh: Collection[Written], at_most: float) -> None:
        """The worst moments to commit: a later message of the key has just been claimed, or is being dispatched."""
        last = max(fresh, key=lambda message: message.sequence)
        step = self.random.choice(("leased", "dispatched", "dispatched"))
        if last.key is not None:
            await self.sight.until_overtaken(step, str(last.table), last.key, last.sequence, at_most)

    def _count_late(self, table: TableName, fresh: dict[UUID, Written]) -> None:
        """How often a message was committed when a later one of its key was with a relay, or had been through."""
        for message in fresh.values():
            later = [
                row
                for row in self.store.table(table).rows.values()
                if row.record.key == message.key is not None and row.sequence > message.sequence
            ]
            self.record.counts["committed behind a leased one"] += any(row.lock_token for row in later)
            self.record.counts["committed behind a published one"] += any(row.published_at for row in later)

    async def _enqueue(
        self, outbox: Outbox, tx: object, key: str | None, into: dict[UUID, Written], *, hasty: bool
    ) -> None:
        random = self.random
        messages: list[Message] = []
        kinds: list[str] = []
        for _ in range(random.choice((1, 1, 1, 2, 2, 15))):
            kind = self._kind()
            delay = (
                timedelta(seconds=random.uniform(0.1, 15))
                if random.random() < (0.3 if hasty else 0.1)
                else None
            )
            topic = random.choice(("a.b.v1", "c.d.v1"))
            if kind == "unroutable":
                topic = "nowhere.x.v1"
            event_id = UUID(int=random.getrandbits(128), version=4)
            messages.append(Message(topic, {"kind": kind}, key=key, delay=delay, event_id=event_id))
            kinds.append(kind)
        sequences = await outbox.enqueue_many(tx, messages, serialize_key=not hasty)
        moment = next(self._moments)
        for message, sequence, kind in zip(messages, sequences, kinds, strict=True):
            delay_seconds = 0.0 if message.delay is None else message.delay.total_seconds()
            due = self.record.now() + delay_seconds
            into[message.event_id] = Written(outbox.table, sequence, key, kind, due, moment)

    def _kind(self) -> str:
        if self.plan.killer and not self._killers:
            self._killers = 1
            return "killer"
        if self.random.random() > 0.04:
            return "fine"
        # Without a probe nobody can tell a message that drives a broker away from a broker that is away.
        kinds = ("poison", "refused", "unroutable", "dropper") if self.plan.probes else ("poison", "refused")
        return self.random.choice(kinds)
