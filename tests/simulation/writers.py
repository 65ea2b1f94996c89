"""Applications that write messages: in short and long transactions, with rollbacks, savepoints, delays and keys."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from uuid import UUID

from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.stores.memory import MemoryStore
from outbox_core.table import TableName
from tests.simulation.plan import Plan
from tests.simulation.record import Record


@dataclass
class Written:
    """A message as its writer knows it."""

    table: TableName
    sequence: int
    key: str | None
    kind: str
    due: float


@dataclass
class Writers:
    store: MemoryStore
    plan: Plan
    tables: list[TableName]
    record: Record
    random: Random
    committed: dict[tuple[str, UUID], Written] = field(default_factory=dict)
    rolled_back: set[tuple[str, UUID]] = field(default_factory=set)
    _killers: int = 0

    async def write(self, until: float) -> None:
        """One writer: transaction after transaction, each over before ``until``."""
        while (now := self.record.now()) < until - 1.0:
            await self._transaction(until - now - 0.5)
            await asyncio.sleep(self.random.expovariate(1.2))

    async def _transaction(self, at_most: float) -> None:
        random = self.random
        table = random.choice(self.tables)
        # One key for a whole transaction: two that lock several in different order would wait for each other.
        key = f"key-{random.randrange(self.plan.keys)}" if random.random() < 0.6 else None
        outbox = Outbox(table, hint=False)
        fresh: dict[UUID, Written] = {}
        within: dict[UUID, Written] = {}
        undone: set[UUID] = set()
        lasts = random.uniform(0.5, 12.0) if random.random() < 0.08 else random.uniform(0.0, 0.01)
        try:
            async with self.store.transaction() as tx:
                await self._enqueue(outbox, tx, key, fresh)
                if random.random() < 0.1:
                    try:
                        async with tx.savepoint():
                            await self._enqueue(outbox, tx, key, within)
                            undone.update(within)
                            raise LookupError
                    except LookupError:
                        self.record.counts["savepoint rolled back"] += 1
                if lasts > 0.5:
                    self.record.counts["long transaction"] += 1
                await asyncio.sleep(min(lasts, at_most))
                if random.random() < 0.12:
                    raise LookupError
        except LookupError:
            self.record.counts["rolled back"] += 1
            undone.update(fresh)
            fresh = {}
        self.committed.update({(str(table), event_id): message for event_id, message in fresh.items()})
        self.rolled_back.update((str(table), event_id) for event_id in undone)
        self.record.say(f"committed {[message.sequence for message in fresh.values()]} of {table}")
        if fresh and random.random() < 0.4:
            self.store.database.tell(table)

    async def _enqueue(self, outbox: Outbox, tx: object, key: str | None, into: dict[UUID, Written]) -> None:
        random = self.random
        messages: list[Message] = []
        kinds: list[str] = []
        for _ in range(random.choice((1, 1, 1, 2, 2, 15))):
            kind = self._kind()
            delay = timedelta(seconds=random.uniform(0.1, 15)) if random.random() < 0.1 else None
            topic = random.choice(("a.b.v1", "c.d.v1"))
            if kind == "unroutable":
                topic = "nowhere.x.v1"
            event_id = UUID(int=random.getrandbits(128), version=4)
            messages.append(Message(topic, {"kind": kind}, key=key, delay=delay, event_id=event_id))
            kinds.append(kind)
        sequences = await outbox.enqueue_many(tx, messages, serialize_key=True)
        for message, sequence, kind in zip(messages, sequences, kinds, strict=True):
            delay_seconds = 0.0 if message.delay is None else message.delay.total_seconds()
            due = self.record.now() + delay_seconds
            into[message.event_id] = Written(outbox.table, sequence, key, kind, due)

    def _kind(self) -> str:
        if self.plan.killer and not self._killers:
            self._killers = 1
            return "killer"
        if self.random.random() > 0.04:
            return "fine"
        # Without a probe nobody can tell a message that drives a broker away from a broker that is away.
        kinds = ("poison", "refused", "unroutable", "dropper") if self.plan.probes else ("poison", "refused")
        return self.random.choice(kinds)
