"""The rows of its keys that each claim could see, and which dispatches that allows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from outbox_core.meta import Meta
from outbox_core.stores.memory import MemoryRow, MemoryTable
from outbox_core.table import TableName
from tests.kit.deliveries import LeasedRow
from tests.simulation.record import Record


@dataclass
class Sight:
    """Order among the rows visible to a claim: what was committed before a row was leased goes before it. What commits
    later, with any sequence, goes before everything that is leased after that."""

    record: Record
    blocks: bool
    """True if a dead message holds its key."""
    _before: dict[tuple[UUID, UUID], tuple[UUID, ...]] = field(default_factory=dict)
    """By lease (token and row): the unresolved messages of its key with a lower sequence, when it was taken."""
    _acknowledged: set[tuple[str, str, UUID]] = field(default_factory=set)
    _awaited: dict[asyncio.Event, tuple[str, str, str | None, int]] = field(default_factory=dict)

    async def until_overtaken(self, step: str, table: str, key: str, sequence: int, at_most: float) -> None:
        """Wait until a message of the key with a higher sequence is ``leased`` or ``dispatched``, or time is up."""
        overtaken = asyncio.Event()
        self._awaited[overtaken] = (step, table, key, sequence)
        try:
            await asyncio.wait_for(overtaken.wait(), at_most)
        except TimeoutError:
            return
        finally:
            del self._awaited[overtaken]
        self.record.counts[f"committed when a later one was {step}"] += 1

    def _reached(self, step: str, table: str, key: str | None, sequence: int) -> None:
        for event, (wanted, *where, overtaken) in self._awaited.items():
            if wanted == step and where == [table, key] and overtaken < sequence:
                event.set()

    def leased(self, table: TableName, memory: MemoryTable, rows: Sequence[LeasedRow]) -> None:
        """Rows were leased at this very moment: nothing was committed in between."""
        keys = {row.key_id: memory.of_key(row.key_id) for row in rows if row.key_id is not None}
        for row in rows:
            if row.key_id is None:
                continue
            sequence = row.message.meta.sequence
            self._reached("leased", str(table), row.message.meta.key, sequence)
            before = tuple(
                earlier.record.event_id
                for earlier in keys[row.key_id]
                if earlier.sequence < sequence and not self._is_resolved(earlier)
            )
            if before:
                self._before[row.token, row.id] = before
                self.record.counts["leased behind another"] += 1

    def acknowledged(self, process: str, meta: Meta) -> None:
        """The broker acknowledged a message to a process, which may now send the next of the key."""
        self._acknowledged.add((process, meta.table, meta.event_id))

    def dispatched(self, process: str, memory: MemoryTable, row: MemoryRow, table: str) -> None:
        """A dispatch of a leased row begins."""
        self._reached("dispatched", table, row.record.key, row.sequence)
        if row.lock_token is None:
            return
        for event_id in self._before.get((row.lock_token, row.id), ()):
            earlier = memory.rows.get(event_id)
            if earlier is None or self._is_resolved(earlier):
                continue
            if (process, table, event_id) not in self._acknowledged:
                overtaken = f"#{earlier.sequence} ({earlier.state})"
                self.record.violated(
                    "O12", f"{process} dispatches #{row.sequence} although its claim saw {overtaken}"
                )

    def _is_resolved(self, row: MemoryRow) -> bool:
        return row.published_at is not None or (row.dead_at is not None and not self.blocks)
