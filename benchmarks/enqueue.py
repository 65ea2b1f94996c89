"""How fast messages are written, against the same rows written by hand and by pgbench.

    python -m benchmarks.enqueue [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

Without a DSN it starts a durable PostgreSQL of its own. Arms are interleaved and repeated; what counts are the ratios
inside one run. The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from benchmarks import common, running
from benchmarks.catalogue import Mode
from benchmarks.children import TABLE, event_loop
from benchmarks.common import NO_PGBENCH, Place
from benchmarks.enqueue_pgbench import pgbench_rows
from benchmarks.figures import Figure, Missing, Section, figure, ratio
from benchmarks.turns import rotated
from outbox_core.message import Message
from outbox_core.outbox import Outbox

HAND_WRITTEN = common.sql("enqueue_hand_written.sql")
TENANT = UUID("11111111-1111-1111-1111-111111111111")
TOPIC = "shop.order.placed.v1"
KEY = "order-4711"
HEADERS = {"x-region": "eu-central-1", "x-source": "checkout"}
PAYLOAD = {
    "order_id": "4f9c2d0e-6d3b-4b57-9a55-2f1f0f4f7a11",
    "customer": {"id": 90210, "name": "Žofie Nováková", "tier": "gold"},
    "lines": [{"sku": f"SKU-{n:05}", "quantity": n, "price": "12.50"} for n in range(1, 5)],
    "total": "125.00",
}
COLUMNS = {
    "tenants": str(TENANT),
    "topics": TOPIC,
    "keys": KEY,
    "payloads": json.dumps(PAYLOAD),
    "headers": json.dumps(HEADERS),
}
BATCH = 100
WRITERS = (1, 16, 32)
PER_TRANSACTION = {
    "enqueue": (1, "single, a transaction each"),
    "enqueue_100": (100, "single, 100 a transaction"),
}
BUILD_BAR_US, INSERT_BAR, BATCH_BAR = 15.0, 0.9, 0.65
NOT_BUILDING = (
    "The bar leaves out what it costs to build a Message, which is made before the clock starts: a hand-written INSERT"
    " has nothing of the kind to make, and the building has a bar of its own. An application pays for both: that is the"
    " ratio with building, right under the one with the bar. The bars of the writers have building in them."
)


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    repeats: int
    single: int
    batches: int
    pgbench_seconds: int
    writers_repeats: int
    writers_seconds: float


SIZES = {
    Mode.SMOKE: Size(1, 20, 2, 1, 1, 0.05),
    Mode.QUICK: Size(3, 200, 15, 1, 3, 0.2),
    Mode.FULL: Size(9, 500, 50, 2, 7, 1.0),
}


def message() -> Message:
    return Message(TOPIC, PAYLOAD, tenant_id=TENANT, key=KEY, headers=HEADERS)


async def by_hand(connection: asyncpg.Connection, event_id: UUID) -> int:
    """What an application does that writes its own INSERT: encode, digest, execute."""
    payload, headers = json.dumps(PAYLOAD), json.dumps(HEADERS)
    digest = hashlib.sha256(payload.encode()).digest()
    row = await connection.fetchrow(
        HAND_WRITTEN, uuid4(), event_id, TENANT, TOPIC, KEY, payload, None, None, headers, None, None, digest
    )
    assert row is not None
    sequence: int = row[0]
    return sequence


async def by_library(connection: asyncpg.Connection, outbox: Outbox, one: Message) -> None:
    await outbox.enqueue(connection, one)


async def building_it(connection: asyncpg.Connection, outbox: Outbox, _: Message) -> None:
    await outbox.enqueue(connection, message())


async def by_insert(connection: asyncpg.Connection, _: Outbox, one: Message) -> None:
    await by_hand(connection, one.event_id)


Write = Callable[[asyncpg.Connection, Outbox, Message], Awaitable[None]]
"""Writes a row. The message, and with it the event id, was made before the clock started."""


async def singles(connection: asyncpg.Connection, size: Size, write: Write, per_transaction: int) -> float:
    await common.empty(connection)
    outbox, messages = Outbox(TABLE), [message() for _ in range(size.single)]
    _settle()
    started = time.perf_counter()
    for first in range(0, size.single, per_transaction):
        async with connection.transaction():
            for one in messages[first : first + per_transaction]:
                await write(connection, outbox, one)
    return size.single / (time.perf_counter() - started)


async def batches(connection: asyncpg.Connection, size: Size) -> float:
    await common.empty(connection)
    outbox = Outbox(TABLE)
    prepared = [[message() for _ in range(BATCH)] for _ in range(size.batches)]
    _settle()
    started = time.perf_counter()
    for batch in prepared:
        async with connection.transaction():
            await outbox.enqueue_many(connection, batch)
    return size.batches * BATCH / (time.perf_counter() - started)


def _settle() -> None:
    """Keep the messages made beforehand out of the garbage collector's way while the time runs."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


HINTED, QUIET = Outbox(TABLE), Outbox(TABLE, hint=False)
"""One each for all writers: hints are coalesced by the outbox that gives them."""


async def hinted(connection: asyncpg.Connection) -> int:
    await HINTED.enqueue(connection, message())
    return 1


async def quiet(connection: asyncpg.Connection) -> int:
    await QUIET.enqueue(connection, message())
    return 1


async def inserted(connection: asyncpg.Connection) -> int:
    await by_hand(connection, uuid4())
    return 1


async def batched(connection: asyncpg.Connection) -> int:
    await HINTED.enqueue_many(connection, [message() for _ in range(BATCH)])
    return BATCH


Committed = Callable[[Any], Awaitable[int]]
"""Writes what one transaction has; the number of rows."""


async def writers(dsn: str, count: int, seconds: float, write: Committed) -> float:
    """Rows a second of so many writers in one process, on a connection each; what ``write`` does is a transaction."""
    async with asyncpg.create_pool(dsn, min_size=count, max_size=count) as pool:
        started = time.perf_counter()
        end = started + seconds

        async def commit() -> int:
            done = 0
            async with pool.acquire() as connection:
                while time.perf_counter() < end:
                    async with connection.transaction():
                        rows = await write(connection)
                    done += rows
            return done

        rows = sum(await asyncio.gather(*(commit() for _ in range(count))))
        return rows / (time.perf_counter() - started)  # the last of them ended after its time


def building() -> float:
    """Microseconds to build and validate a message."""
    rounds = 2000
    started = time.perf_counter()
    for _ in range(rounds):
        message()
    return (time.perf_counter() - started) / rounds * 1e6


Arm = Callable[[], Awaitable[float]]


async def by_turns(repeats: int, arms: Sequence[Arm]) -> list[list[float]]:
    """What each arm gave in each round, after one round that warms all up."""
    found: dict[Arm, list[float]] = {arm: [] for arm in arms}
    for number in range(repeats + 1):
        for arm in rotated(arms, number):
            found[arm].append(await arm())
    return [rates[1:] for rates in found.values()]


def compared(
    name: str, text: str, ours: list[float], theirs: list[float], unit: str = "rows/s", **bar: float
) -> list[Figure]:
    """The ratio of two arms, and the rates of both; the text has their names with a slash between them."""
    first, _, second = text.partition(" / ")
    return [
        ratio(name, text, ours, theirs, **bar),
        figure(f"{name}_rate", first, ours, unit=unit),
        figure(f"{name}_yardstick_rate", second, theirs, unit=unit),
    ]


def beside_insert(
    name: str, text: str, ready: list[float], built: list[float], yardstick: list[float]
) -> list[Figure]:
    """The ratio that has the bar, the one with building right under it, and the rates."""
    hand_written = "hand-written INSERT"
    judged, *rates = compared(
        f"{name}_vs_insert", f"{text} / {hand_written}", ready, yardstick, at_least=INSERT_BAR
    )
    with_building = f"{text}, with building / {hand_written}"
    return [judged, ratio(f"{name}_with_building_vs_insert", with_building, built, yardstick), *rates]


async def measure(place: Place, size: Size) -> Section:
    async with common.database(place) as connection:
        figures = await _against_insert(connection, size)
        against, missing = await _against_pgbench(connection, place, size)
        figures += [*against, *await _side_by_side(connection, place, size)]
    build = [building() for _ in range(5)]
    figures.append(
        figure("message_build_us", "build and validate a Message", build, unit="µs", at_most=BUILD_BAR_US)
    )
    notes = (
        f"Rounds: {size.repeats}, of the writers {size.writers_repeats}; arms in one process, on {event_loop()[1]}.",
        "Beside the INSERT: both encode, digest and make the row's id while the clock runs, and use a ready event id.",
        NOT_BUILDING,
        "Beside pgbench, which sends the same arrays again and again: Messages are ready, and encoded on the clock.",
        "Writers commit every message, or batch, by itself, on a connection each, and build it while the clock runs.",
        "The hint is the wake-up of idle relays.",
    )
    return Section("enqueue", figures, notes, missing=missing)


async def _against_insert(connection: asyncpg.Connection, size: Size) -> list[Figure]:
    figures: list[Figure] = []
    for name, (per_transaction, text) in PER_TRANSACTION.items():
        arms = [
            partial(singles, connection, size, write, per_transaction)
            for write in (by_library, building_it, by_insert)
        ]
        ready, built, yardstick = await by_turns(size.repeats, arms)
        figures += beside_insert(name, text, ready, built, yardstick)
    return figures


async def _side_by_side(connection: asyncpg.Connection, place: Place, size: Size) -> list[Figure]:
    """Writers beside each other: with and without hints, beside the INSERT, and in batches."""
    figures: list[Figure] = []
    for count in WRITERS:

        async def arm(write: Committed, count: int = count) -> float:
            await common.empty(connection)
            return await writers(place.dsn, count, size.writers_seconds, write)

        arms = [partial(arm, write) for write in (hinted, quiet, inserted, batched)]
        with_hint, without, by_insert_, in_batches = await by_turns(size.writers_repeats, arms)
        name, text = f"{count}_writers", f"writers: {count}"
        figures += compared(
            f"enqueue_hint_{name}", f"{text}, with hint / {text}, without", with_hint, without
        )
        against = f"{text}, with hint / {text}, hand-written INSERT"
        figures.append(
            ratio(f"enqueue_{name}_vs_insert", against, with_hint, by_insert_, at_least=INSERT_BAR)
        )
        figures.append(
            figure(f"enqueue_batch_{name}_rate", f"{text}, batches of {BATCH}", in_batches, unit="rows/s")
        )
    return figures


async def _against_pgbench(
    connection: asyncpg.Connection, place: Place, size: Size
) -> tuple[list[Figure], list[Missing]]:
    name, text = "enqueue_batch_vs_pgbench", f"batch of {BATCH} / pgbench, INSERT … SELECT unnest"
    if (program := place.pgbench) is None:
        return [], [Missing(name, text, NO_PGBENCH, at_least=BATCH_BAR)]
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(common.with_uuids(connection, common.sql("enqueue_pgbench.sql")))
        script.flush()

        async def theirs() -> float:
            await common.empty(connection)
            return await asyncio.to_thread(
                partial(pgbench_rows, one=COLUMNS, batch=BATCH),
                program,
                place.dsn,
                Path(script.name),
                size.pgbench_seconds,
            )

        ours, yardstick = await by_turns(size.repeats, [partial(batches, connection, size), theirs])
    return compared(name, text, ours, yardstick, at_least=BATCH_BAR), []


def bars(_: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    against = {f"{name}_vs_insert" for name in (*PER_TRANSACTION, *(f"enqueue_{n}_writers" for n in WRITERS))}
    return frozenset({*against, "enqueue_batch_vs_pgbench", "message_build_us"})


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(running.main(__doc__, "enqueue"))
