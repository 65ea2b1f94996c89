"""A relay on rows that are already in memory: what a message costs in its Python alone.

    python -m benchmarks.hot_path_process '{"rows": 40000, "keys": 0}'

Prints the processor time of the delivery as one line of JSON. ``"made"`` makes more rows than are delivered. With
``"profile": "FILE"`` it runs under cProfile.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from asyncpg.pgproto import pgproto

from benchmarks.children import TABLE, event_loop
from benchmarks.relay_process import Metrics, Stopwatch, nothing
from outbox_core.cli.process import tune_gc
from outbox_core.identifiers import uuid7
from outbox_core.relay import Relay
from outbox_core.store import (
    Capabilities,
    Claim,
    KeyId,
    KeyRequest,
    Lease,
    Leased,
    Predecessor,
    Resolution,
    RowId,
    Tick,
)
from outbox_core.stores.postgres.rows import leased
from outbox_core.table import TableName

START = datetime(2026, 1, 1, tzinfo=UTC)


class AlwaysElected:
    async def campaign(self) -> int:
        return 1

    async def heartbeat(self, term: int) -> bool:
        return term == 1

    async def resign(self, term: int) -> None:
        pass


class RecordedStore:
    """Answers at once with rows as the driver would have them; every write is applied."""

    capabilities = Capabilities(
        session_locks=True, wakeups="push", transaction_start_time=True, advisory_key_locks=True
    )

    def __init__(self, rows: int, made: int, keys: int) -> None:
        tenant, seconds = pgproto.UUID(bytes(16)), START.timestamp()
        self._next = 0
        self._returned: list[tuple[Any, ...]] = []
        """What the relay has released: on a slow machine that happens to slow keys, whose rows must come back."""
        self._records = [
            (
                pgproto.UUID(uuid7().bytes), tenant, "shop.order.placed.v1", b"x" * 300, "application/json",
                pgproto.UUID(uuid7().bytes), number + 1, seconds, 1, seconds + number / 1e6,
                f"order-{number % keys}" if keys else None, None, None, None, 0, False, "[]",
            )
            for number in range(made)
        ][:rows]  # fmt: skip

    async def open(self, *_: object) -> None:
        pass

    async def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    async def claim(self, table: TableName, claim: Claim) -> Leased:
        await asyncio.sleep(0)
        found: list[tuple[Any, ...]] = []
        if self._returned:
            held = set(claim.held_keys)
            found = self._again(lambda key_id: key_id not in held, claim.limit)
        fresh = self._records[self._next : self._next + claim.limit - len(found)]
        self._next += len(fresh)
        return leased(table, claim, found + fresh, searched=claim.find_predecessors)

    def _again(self, wanted: Callable[[KeyId | None], bool], limit: int) -> list[tuple[Any, ...]]:
        found = [record for record in self._returned if wanted(_key_of(record))][:limit]
        taken = {record[0] for record in found}
        self._returned = [record for record in self._returned if record[0] not in taken]
        return found

    async def publish(self, *_: object, **__: bool) -> set[Lease]:
        await asyncio.sleep(0)
        return set()

    async def claim_keys(self, table: TableName, claim: Claim, keys: Sequence[KeyRequest]) -> Leased:
        found: list[tuple[Any, ...]] = []
        self._returned.sort(key=itemgetter(6))
        for wanted, most, _ in keys:
            found += self._again({wanted}.__contains__, most)
        return leased(table, claim, found, searched=True)

    async def undo_claim(self, *_: object) -> int:
        return 0

    async def predecessors(self, *_: object, **__: bool) -> dict[KeyId, Predecessor]:
        return {}

    async def fail(self, *_: object) -> set[Lease]:
        return set()

    async def release(self, _: TableName, leases: Sequence[Lease], **__: bool) -> set[Lease]:
        released = {row_id for row_id, _token in leases}
        self._returned += [record for record in self._records if record[0] in released]
        return set()

    async def resolutions(self, *_: object) -> dict[RowId, Resolution]:
        return {}

    async def locked_rows(self, *_: object) -> set[RowId]:
        return set()

    async def tick(self, *_: object) -> Tick:
        return Tick(START, frozenset(), frozenset())

    async def end_stuck_sessions(self, *_: object) -> list[int]:
        return []

    def election(self, *_: object) -> AlwaysElected:
        return AlwaysElected()

    def listen(self, *_: object) -> None:
        pass

    async def keep_listening(self) -> None:
        pass


def _key_of(record: tuple[Any, ...]) -> KeyId | None:
    return None if record[10] is None else (record[1], record[10])


async def deliver(order: dict[str, Any], profiler: cProfile.Profile | None) -> dict[str, Any]:
    rows = order["rows"]
    store: Any = RecordedStore(rows, order.get("made", rows), order["keys"])
    watch = Stopwatch(rows)
    relay = Relay(
        lambda: store,
        table=TABLE,
        dispatcher=nothing,
        observers=(Metrics(), watch),
        cleaner=None,
    )
    async with asyncio.timeout(600):
        if profiler is not None:
            profiler.enable()
        async with relay, asyncio.TaskGroup() as group:
            ended = group.create_task(relay.wait())  # raises what it died of
            await watch.done.wait()
            ended.cancel()
        if profiler is not None:
            profiler.disable()
    return watch.result()


def main() -> int:
    order = json.loads(sys.argv[1])
    profiler = cProfile.Profile() if order.get("profile") else None
    tune_gc()
    with asyncio.Runner(loop_factory=event_loop()[0]) as runner:
        result = runner.run(deliver(order, profiler))
    if profiler is not None:
        profiler.dump_stats(order["profile"])
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
