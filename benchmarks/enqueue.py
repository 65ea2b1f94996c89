"""How fast messages are written, against the same rows written by hand and by pgbench.

    python -m benchmarks.enqueue [--dsn DSN] [--quick] [--json FILE]

Without a DSN it starts a durable PostgreSQL of its own. Arms are interleaved and repeated; what counts are the ratios
inside one run. The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from benchmarks import common
from benchmarks.common import TABLE
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


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    repeats: int
    single: int
    batches: int
    pgbench_seconds: int
    writers_seconds: float


QUICK, FULL = Size(9, 200, 15, 1, 0.5), Size(21, 500, 50, 2, 1.0)


@dataclass(frozen=True)
class Figure:
    """An arm and its yardstick, in units a second, over the repeats of one run."""

    name: str
    unit: str
    rate: float
    yardstick: float
    ratio: float
    lowest: float
    highest: float
    bar: float | None


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
    bar: float | None,
    repeats: int,
    arm: Callable[[], Awaitable[float]],
    yardstick: Callable[[], Awaitable[float]],
    *,
    unit: str = "rows/s",
) -> Figure:
    """Both arms by turns, the first of each pair changing sides; the ratio is the median of the pairs' ratios."""
    pairs: list[tuple[float, float]] = []
    for number in range(repeats + 1):
        if number % 2:
            ours = await arm()
            theirs = await yardstick()
        else:
            theirs = await yardstick()
            ours = await arm()
        if number:  # the first pair warms both up
            pairs.append((ours, theirs))
    ratios = [one / other for one, other in pairs]
    return Figure(
        name=name,
        unit=unit,
        rate=statistics.median(one for one, _ in pairs),
        yardstick=statistics.median(other for _, other in pairs),
        ratio=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        bar=bar,
    )


async def measure(dsn: str, pgbench: str | None, size: Size) -> list[Figure]:
    connection = await asyncpg.connect(dsn)
    try:
        await common.install(connection)
        figures = await _figures(connection, dsn, pgbench, size)
        await common.remove(connection)
    finally:
        await connection.close()
    return figures


async def _figures(connection: asyncpg.Connection, dsn: str, pgbench: str | None, size: Size) -> list[Figure]:
    figures = []
    for per_transaction, name in ((1, "single, a transaction each"), (100, "single, 100 a transaction")):

        async def single(*, library: bool, per_transaction: int = per_transaction) -> float:
            await connection.execute(f"TRUNCATE {TABLE.quoted}")
            return await singles(connection, size, library=library, per_transaction=per_transaction)

        figures.append(
            await compared(
                f"{name} / hand-written INSERT",
                0.9,
                size.repeats,
                lambda single=single: single(library=True),
                lambda single=single: single(library=False),
            )
        )
    if pgbench is not None:
        figures.append(await _against_pgbench(connection, dsn, pgbench, size))
    for count in (1, 16, 32):

        async def hinting(*, hint: bool, count: int = count) -> float:
            await connection.execute(f"TRUNCATE {TABLE.quoted}")
            return await writers(dsn, count, size.writers_seconds, hint=hint)

        figures.append(
            await compared(
                f"{count} writers, with hint / without",
                None,
                size.repeats,
                lambda hinting=hinting: hinting(hint=True),
                lambda hinting=hinting: hinting(hint=False),
                unit="commits/s",
            )
        )
    return figures


async def _against_pgbench(connection: asyncpg.Connection, dsn: str, pgbench: str, size: Size) -> Figure:
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
                pgbench_rows, pgbench, dsn, Path(script.name), size.pgbench_seconds
            )

        return await compared(
            f"batch of {BATCH} / pgbench, INSERT … SELECT unnest", 0.65, size.repeats, ours, theirs
        )


def report(figures: list[Figure], build: float, loop: str) -> str:
    lines = [
        "| enqueue | rate | yardstick | ratio | lowest to highest | bar |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {f.name} | {f.rate:,.0f} {f.unit} | {f.yardstick:,.0f} {f.unit} | {f.ratio:.2f} |"
        f" {f.lowest:.2f} to {f.highest:.2f} | {'-' if f.bar is None else f'≥ {f.bar}'} |"
        for f in figures
    ]
    lines.append(f"| build and validate a Message | {build:.1f} µs | - | - | - | < 15 µs |")
    return "\n".join([*lines, "", f"Event loop of both arms: {loop}."])


def main() -> int:
    arguments = common.arguments(__doc__ or "")
    factory, loop = common.event_loop()
    with common.place(arguments.dsn) as place, asyncio.Runner(loop_factory=factory) as runner:
        size = QUICK if arguments.quick else FULL
        figures = runner.run(measure(place.dsn, place.pgbench, size))
    build = min(building() for _ in range(5))
    print(report(figures, build, loop))
    if arguments.json is not None:
        content: dict[str, Any] = {"loop": loop, "build_us": build, "figures": [asdict(f) for f in figures]}
        arguments.json.write_text(json.dumps(content, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
