"""How fast messages are written, against the same rows written by hand and by pgbench.

    python -m benchmarks.enqueue [--dsn DSN] [--quick | --smoke] [--json FILE]

Without a DSN it starts a durable PostgreSQL of its own. Arms are interleaved and repeated; what counts are the ratios
inside one run. The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg

from benchmarks import common
from benchmarks.children import TABLE, event_loop
from benchmarks.common import Mode, Place
from benchmarks.figures import Figure, Section, figure, ratio
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
BATCH = 100


BUILD_BAR_US = 15.0


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
    Mode.QUICK: Size(5, 200, 15, 1, 3, 0.3),
    Mode.FULL: Size(21, 500, 50, 2, 21, 1.0),
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


async def singles(
    connection: asyncpg.Connection, size: Size, *, library: bool, per_transaction: int
) -> float:
    outbox, messages = Outbox(TABLE), [message() for _ in range(size.single)]
    _settle()
    started = time.perf_counter()
    for first in range(0, size.single, per_transaction):
        async with connection.transaction():
            for one in messages[first : first + per_transaction]:
                if library:
                    await outbox.enqueue(connection, one)
                else:
                    await by_hand(connection, one.event_id)
    return size.single / (time.perf_counter() - started)


async def batches(connection: asyncpg.Connection, size: Size) -> float:
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


async def writers(dsn: str, count: int, seconds: float, *, hint: bool) -> float:
    """Commits a second of writers that each commit every message by itself, in one process."""
    outbox = Outbox(TABLE, hint=hint)
    async with asyncpg.create_pool(dsn, min_size=count, max_size=count) as pool:
        end = time.perf_counter() + seconds

        async def write() -> int:
            done = 0
            async with pool.acquire() as connection:
                while time.perf_counter() < end:
                    async with connection.transaction():
                        await outbox.enqueue(connection, message())
                    done += 1
            return done

        return sum(await asyncio.gather(*(write() for _ in range(count)))) / seconds


def pgbench_rows(program: str, dsn: str, script: Path, seconds: int) -> float:
    """Rows a second of one pgbench client that sends the same arrays with each prepared statement."""
    digest = "\\\\x" + hashlib.sha256(b"").hexdigest()
    columns = {
        "tenants": str(TENANT),
        "topics": TOPIC,
        "keys": KEY,
        "payloads": json.dumps(PAYLOAD),
        "headers": json.dumps(HEADERS),
        "digests": digest,
        **dict.fromkeys(("bodies", "types", "parents", "states")),
    }
    variables = [f"--define={name}={_array(value)}" for name, value in columns.items()]
    command = [
        program,
        "-n",
        "-M",
        "prepared",
        "-c",
        "1",
        "-T",
        str(seconds),
        "-f",
        str(script),
        *variables,
        dsn,
    ]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    found = re.search(r"tps = ([0-9.]+)", completed.stdout)
    if found is None:
        raise RuntimeError(f"pgbench failed:\n{completed.stdout}{completed.stderr}")
    return float(found[1]) * BATCH


def _array(value: str | None) -> str:
    if value is None:
        return "{" + ",".join(["NULL"] * BATCH) + "}"
    element = '"' + value.replace('"', '\\"') + '"'
    return "{" + ",".join([element] * BATCH) + "}"


def building() -> float:
    """Microseconds to build and validate a message."""
    rounds = 2000
    started = time.perf_counter()
    for _ in range(rounds):
        message()
    return (time.perf_counter() - started) / rounds * 1e6


async def compared(
    name: str,
    text: str,
    repeats: int,
    arm: Callable[[], Awaitable[float]],
    yardstick: Callable[[], Awaitable[float]],
    *,
    at_least: float | None = None,
    unit: str = "rows/s",
) -> list[Figure]:
    """Both arms by turns, the first of each pair changing sides: their ratio, and the rates of both."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(repeats + 1):
        if number % 2:
            ours.append(await arm())
            theirs.append(await yardstick())
        else:
            theirs.append(await yardstick())
            ours.append(await arm())
    del ours[0], theirs[0]  # the first pair warms both up
    first, _, second = text.partition(" / ")
    return [
        ratio(name, text, ours, theirs, at_least=at_least),
        figure(f"{name}_rate", first, ours, unit=unit),
        figure(f"{name}_yardstick_rate", second, theirs, unit=unit),
    ]


async def measure(place: Place, size: Size) -> Section:
    connection = await asyncpg.connect(place.dsn)
    try:
        await common.install(connection)
        figures = [
            *await _against_insert(connection, size),
            *await _against_pgbench(connection, place, size),
            *await _hinting(connection, place, size),
        ]
        await common.remove(connection)
    finally:
        await connection.close()
    build = [building() for _ in range(5)]
    figures.append(
        figure("message_build_us", "build and validate a Message", build, unit="µs", at_most=BUILD_BAR_US)
    )
    notes = (
        f"Rounds: {size.repeats}; both arms in one process, on {event_loop()[1]}.",
        "pgbench: one client, the same arrays with each prepared statement.",
        "Writers commit every message by itself, on a connection each; the hint is the wake-up of idle relays.",
    )
    return Section("enqueue", figures, notes)


async def _against_insert(connection: asyncpg.Connection, size: Size) -> list[Figure]:
    figures: list[Figure] = []
    for per_transaction, name, text in (
        (1, "enqueue_vs_insert", "single, a transaction each / hand-written INSERT"),
        (100, "enqueue_100_vs_insert", "single, 100 a transaction / hand-written INSERT"),
    ):

        async def single(*, library: bool, per_transaction: int = per_transaction) -> float:
            await connection.execute(f"TRUNCATE {TABLE.quoted}")
            return await singles(connection, size, library=library, per_transaction=per_transaction)

        figures += await compared(
            name,
            text,
            size.repeats,
            partial(single, library=True),
            partial(single, library=False),
            at_least=0.9,
        )
    return figures


async def _hinting(connection: asyncpg.Connection, place: Place, size: Size) -> list[Figure]:
    figures: list[Figure] = []
    for count in (1, 16, 32):

        async def hinting(*, hint: bool, count: int = count) -> float:
            await connection.execute(f"TRUNCATE {TABLE.quoted}")
            return await writers(place.dsn, count, size.writers_seconds, hint=hint)

        figures += await compared(
            f"enqueue_hint_{count}_writers",
            f"writers: {count}, with hint / writers: {count}, without",
            size.writers_repeats,
            partial(hinting, hint=True),
            partial(hinting, hint=False),
            unit="commits/s",
        )
    return figures


async def _against_pgbench(connection: asyncpg.Connection, place: Place, size: Size) -> list[Figure]:
    pgbench = place.pgbench
    if pgbench is None:
        return []
    makes_uuid = "uuidv7" if connection.get_server_version().major >= 18 else "gen_random_uuid"
    text = common.sql("enqueue_pgbench.sql")

    async def ours() -> float:
        await connection.execute(f"TRUNCATE {TABLE.quoted}")
        return await batches(connection, size)

    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(text.replace("{uuid}", makes_uuid))
        script.flush()

        async def theirs() -> float:
            await connection.execute(f"TRUNCATE {TABLE.quoted}")
            return await asyncio.to_thread(
                pgbench_rows, pgbench, place.dsn, Path(script.name), size.pgbench_seconds
            )

        return await compared(
            "enqueue_batch_vs_pgbench",
            f"batch of {BATCH} / pgbench, INSERT … SELECT unnest",
            size.repeats,
            ours,
            theirs,
            at_least=0.65,
        )


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, run))
