"""What must be true at the end of every run, and by when."""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import TYPE_CHECKING, Any
from uuid import UUID

from outbox_core.errors import PermanentError
from outbox_core.stores.memory import MemoryRow
from tests.simulation.writers import Written

if TYPE_CHECKING:
    from tests.simulation.world import World

HEALING_SECONDS = 400.0
"""By when every message is delivered or dead, those included that kill a relay at each attempt."""


async def wait_until_resolved(world: World) -> None:
    """Let the relays work until nothing is left to do; then note which healthy message was late (O16)."""
    healed = world.record.now()
    settings = world.plan.settings
    bound = (
        settings["lock_ttl"] + settings["takeover"] + 2 * settings["backoff_cap"] + settings["dispatch_timeout"]
        + 2 * settings["database_timeout"] + 2 * settings["poll_interval"] + 3.0
    )  # fmt: skip
    late: set[int] = set()
    while world.record.now() < healed + HEALING_SECONDS:
        open_rows = unresolved(world)
        if not open_rows:
            break
        if not world.plan.killer:
            for written, _ in open_rows:
                overdue = world.record.now() > max(healed, written.due) + bound
                if (
                    overdue
                    and written.key is None
                    and written.kind == "fine"
                    and written.sequence not in late
                ):
                    late.add(written.sequence)
                    world.record.violated("O16", f"#{written.sequence} is late by more than {bound:g} s")
        await asyncio.sleep(1.0)


def unresolved(world: World) -> list[Any]:
    """Committed messages neither published nor dead, nor behind a dead one that blocks its key."""
    found: list[Any] = []
    blocked: dict[tuple[str, str], int] = {}
    if world.plan.settings["on_dead"] == "block":
        for (table, event_id), written in world.writers.committed.items():
            row = _row(world, table, event_id)
            if written.key is not None and row is not None and row.dead_at is not None:
                place = (table, written.key)
                blocked[place] = min(written.sequence, blocked.get(place, written.sequence))
    for (table, event_id), written in world.writers.committed.items():
        row = _row(world, table, event_id)
        if row is None or row.published_at is not None or row.dead_at is not None:
            continue
        if written.key is None or written.sequence < blocked.get((table, written.key), 1 << 62):
            found.append((written, row))
    return found


def check(world: World) -> None:
    """O1, O2, O3, O9, O12 and what a stop leaves behind."""
    record, plan = world.record, world.plan
    first: dict[tuple[str, UUID], int] = {}
    for number, delivery in enumerate(world.deliveries):
        first.setdefault((delivery.table, delivery.event_id), number)
    record.counts["delivered again"] += len(world.deliveries) - len(first)
    record.counts["messages"] += len(world.writers.committed)

    for phantom in first.keys() - world.writers.committed.keys():
        record.violated("O1", f"{phantom} was delivered and never committed")
    for written, row in unresolved(world):
        record.violated(
            "O2", f"{written} is neither delivered nor dead: {row.state}, {row.attempts} attempts"
        )
    for (table, event_id), written in world.writers.committed.items():
        row = _row(world, table, event_id)
        name = f"{table}#{written.sequence} ({written.kind})"
        delivered = (table, event_id) in first
        if (row is None or row.published_at is not None) and not delivered:
            record.violated("O3", f"{name} counts as published and was never delivered")
        if row is not None and row.dead_at is not None:
            record.counts["dead"] += 1
            permanent = (row.last_error or "").startswith(PermanentError.code)
            if not permanent and row.attempts < plan.settings["max_attempts"]:
                record.violated("O9", f"{name} is dead after {row.attempts} attempts: {row.last_error}")
        if written.kind != "fine" and (row is None or row.dead_at is None) and row in _resolved(world, row):
            record.violated("O9", f"{name} can never be delivered and is not dead")
        failures = sum(broker.own_failures[table, event_id] for broker in world.brokers)
        if failures > plan.settings["max_attempts"]:
            record.violated("O9", f"{name} failed {failures} times")
    if plan.ordered:
        _check_order(world, first)
    if plan.shields:
        tokens = {token for process in world.stopped for token in process.store.tokens}
        for kept in world.kept.values():
            for row in kept.rows.values():
                if row.lock_token in tokens:
                    record.violated("O15", f"#{row.sequence} is still leased by a relay that has stopped")


def _resolved(world: World, row: MemoryRow | None) -> list[MemoryRow | None]:
    """The row, unless it waits behind a dead one on purpose."""
    return [row] if row is None or row.published_at is not None else []


def _check_order(world: World, first: dict[tuple[str, UUID], int]) -> None:
    """O12: first deliveries of a key are in the order of its sequences, if the earlier one was committed before the
    later one was written; `Sight` knows which others may go. A dead message may have arrived late: whoever was cut off
    while it dispatched it cannot be called back."""
    by_key: dict[tuple[str, str], list[tuple[Written, int]]] = {}
    for (table, event_id), written in world.writers.committed.items():
        row = _row(world, table, event_id)
        if written.key is None or (row is not None and row.dead_at is not None):
            continue
        if (table, event_id) in first:
            by_key.setdefault((table, written.key), []).append((written, first[table, event_id]))
    for key, places in by_key.items():
        places.sort(key=lambda place: place[0].sequence)
        for (earlier, arrived), (later, arrived_later) in combinations(places, 2):
            if arrived < arrived_later:
                continue
            if earlier.committed < later.written:
                world.record.violated("O12", f"{key}: #{later.sequence} arrived before #{earlier.sequence}")
            else:
                world.record.counts["arrived before one committed late"] += 1


def _row(world: World, table: str, event_id: UUID) -> MemoryRow | None:
    return world.kept[table].rows.get(event_id)
