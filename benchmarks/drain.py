"""How fast a relay empties a backlog, against pgbench running the relay's own SQL and against a naive loop.

    python -m benchmarks.drain [--dsn DSN] [--quick] [--json FILE]

The dispatcher does nothing; everything else is as it is by default, with leadership, logging and a metrics observer.
The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from benchmarks import common
from benchmarks.common import TABLE, Figure, Place, figure, ratio
from outbox_core.stores.postgres.sessions import PLANNER
from outbox_core.stores.postgres.sql import query

CLAIM_PARAMETERS = (
    "term", "token", "since", "after", "ttl", "tenants", "keys", "shut", "batch", "bytes",
)  # fmt: skip
PUBLISH_PARAMETERS = ("ids", "tokens")
NAIVE_SECONDS = 3.0


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    rows: int
    repeats: int
    memory_rows: int
    large_rows: int


QUICK, FULL = Size(30_000, 3, 100_000, 60), Size(200_000, 5, 1_000_000, 400)


@dataclass
class Arm:
    """One way to empty the table, and what each round gave."""

    name: str
    keys: int
    run: Callable[[], Awaitable[dict[str, Any]]]
    rates: list[float] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Memory:
    """Resident memory of a relay over its run, in MB."""

    peak: float
    growth: float
    """The median of the last quarter over the median of the one before: 1 is flat."""


async def relay(dsn: str, rows: int, **order: Any) -> tuple[dict[str, Any], list[float]]:
    """A relay process until it has published so many rows: what it measured, and its memory in MB by time."""
    text = json.dumps({"dsn": dsn, "rows": rows, **order})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.relay_process", text, stdout=asyncio.subprocess.PIPE
    )
    watched, samples = Path(f"/proc/{process.pid}/statm"), list[float]()
    reading = asyncio.ensure_future(process.communicate())
    while not reading.done():
        samples.append(_resident(watched))
        await asyncio.wait({reading}, timeout=0.05)
    output, _ = await reading
    if process.returncode != 0:
        raise RuntimeError(f"the relay process failed with {process.returncode}")
    result: dict[str, Any] = json.loads(output)
    return result, samples


def _resident(statm: Path) -> float:
    """MB of a process in memory; 0 once it has ended."""
    try:
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 1e6
    except (OSError, IndexError):
        return 0.0


async def drained(place: Place, rows: int, **settings: Any) -> dict[str, Any]:
    result, _ = await relay(place.dsn, rows, settings=settings)
    return result | {"rate": rows / result["seconds"]}


async def pgbench(place: Place, rows: int, batch: int) -> dict[str, Any]:
    """One client, the relay's own statements prepared, the relay's own session settings."""
    assert place.pgbench is not None
    named = _named(query("claim", TABLE), CLAIM_PARAMETERS)
    script = (
        common.sql("drain_pgbench.sql")
        .replace("{claim}", named)
        .replace("{publish}", _named(query("publish", TABLE), PUBLISH_PARAMETERS))
    )
    connection = await asyncpg.connect(place.dsn)
    try:
        term = await connection.fetchval(common.sql("term.sql"))
    finally:
        await connection.close()
    values = {
        "term": term, "token": UUID(int=1), "since": "0001-01-02", "after": 0, "ttl": 60, "tenants": "{}",
        "keys": "{}", "shut": "{}", "batch": batch, "bytes": 8 * 1024 * 1024,
    }  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        process = await asyncio.create_subprocess_exec(
            place.pgbench, "-n", "-M", "prepared", "-c", "1", "-t", str(rows // batch), "-f", file.name,
            *(f"--define={name}={value}" for name, value in values.items()), place.dsn,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"PGOPTIONS": " ".join(f"-c {name}={value}" for name, value in PLANNER.items())},
        )  # fmt: skip
        output, errors = await asyncio.wait_for(process.communicate(), 600)
    found = re.search(rb"tps = ([0-9.]+)", output)
    if found is None or process.returncode != 0:
        raise RuntimeError(f"pgbench failed:\n{output.decode()}{errors.decode()}")
    return {"rate": float(found[1]) * batch}


def _named(statement: str, names: tuple[str, ...]) -> str:
    return re.sub(r"\$(\d+)", lambda found: f":{names[int(found[1]) - 1]}", statement)


async def naive(place: Place) -> dict[str, Any]:
    """Claim 100, dispatch one by one, acknowledge row by row, for a few seconds."""
    claim, acknowledge = common.sql("naive_claim.sql"), common.sql("naive_ack.sql")
    connection = await asyncpg.connect(place.dsn)
    done, started = 0, time.perf_counter()
    try:
        while time.perf_counter() < started + NAIVE_SECONDS:
            for row in await connection.fetch(claim):
                await asyncio.sleep(0)  # the dispatcher that does nothing
                await connection.execute(acknowledge, row[0])
                done += 1
        return {"rate": done / (time.perf_counter() - started)}
    finally:
        await connection.close()


def arms(place: Place, size: Size) -> list[Arm]:
    found = [
        Arm("relay", 0, lambda: drained(place, size.rows)),
        Arm("relay, 1,000 keys", 1000, lambda: drained(place, size.rows)),
        Arm("relay, delete", 0, lambda: drained(place, size.rows, on_published="delete")),
        Arm("naive loop", 0, lambda: naive(place)),
    ]
    if place.pgbench is not None:
        found += [
            Arm("pgbench, 500 a claim", 0, lambda: pgbench(place, size.rows, 500)),
            Arm("pgbench, 1,000 a claim", 0, lambda: pgbench(place, size.rows, 1000)),
            Arm("pgbench, 1,000 a claim, 1,000 keys", 1000, lambda: pgbench(place, size.rows, 1000)),
        ]
    return found


async def interleaved(connection: asyncpg.Connection, size: Size, turns: list[Arm]) -> None:
    """Every arm once a round on a table just loaded, each round beginning with another one."""
    for number in range(size.repeats):
        shift = number % len(turns)
        for arm in turns[shift:] + turns[:shift]:
            await common.empty(connection)
            await common.load(connection, size.rows, keys=arm.keys)
            result = await arm.run()
            arm.rates.append(result["rate"])
            arm.results.append(result)
            print(f"round {number + 1}: {arm.name}: {result['rate']:,.0f} rows/s", file=sys.stderr)


async def memory(connection: asyncpg.Connection, place: Place, rows: int, script: str) -> Memory:
    await common.empty(connection)
    await common.load(connection, rows, script=script)
    _, samples = await relay(place.dsn, rows, timeout=1800.0)
    samples = [sample for sample in samples if sample]
    quarter = max(len(samples) // 4, 1)
    growth = statistics.median(samples[-quarter:]) / statistics.median(samples[-2 * quarter : -quarter])
    return Memory(max(samples), growth)


async def measure(place: Place, size: Size) -> tuple[list[Figure], dict[str, list[float]]]:
    connection = await asyncpg.connect(place.dsn)
    try:
        await common.install(connection)
        turns = arms(place, size)
        await interleaved(connection, size, turns)
        figures = _figures({arm.name: arm for arm in turns})
        many = await memory(connection, place, size.memory_rows, "load.sql")
        large = await memory(connection, place, size.large_rows, "load_large.sql")
        for name, text, found in (
            ("rows", f"memory, {size.memory_rows:,} rows", many),
            ("large", f"memory, {size.large_rows} bodies of 512 KiB", large),
        ):
            figures.append(figure(f"memory_{name}_mb", text, [found.peak], unit="MB", at_most=150))
            figures.append(
                figure(f"memory_{name}_growth", f"{text}, last quarter / the one before", [found.growth])
            )
        await common.remove(connection)
    finally:
        await connection.close()
    return figures, {arm.name: arm.rates for arm in turns}


def _figures(by_name: dict[str, Arm]) -> list[Figure]:
    figures = [figure(_slug(arm.name), arm.name, arm.rates, unit="rows/s") for arm in by_name.values()]
    plain, keyed = by_name["relay"], by_name["relay, 1,000 keys"]
    delete, loop = by_name["relay, delete"], by_name["naive loop"]
    pgbenches = [arm for arm in by_name.values() if arm.name.startswith("pgbench")]
    if pgbenches:
        small, large, with_keys = (arm.rates for arm in pgbenches)
        figures += [
            ratio("drain_vs_pgbench", "relay / pgbench 1,000", plain.rates, large, at_least=1.0),
            ratio("drain_vs_pgbench_500", "relay / pgbench 500", plain.rates, small, at_least=1.0),
            ratio(
                "drain_keyed_vs_pgbench",
                "relay, 1,000 keys / pgbench 1,000 of the same rows",
                keyed.rates,
                with_keys,
                at_least=1.0,
            ),
        ]
    figures += [
        ratio("drain_vs_naive", "relay / naive loop", plain.rates, loop.rates, at_least=10.0),
        ratio("drain_keyed_vs_naive", "relay, 1,000 keys / naive loop", keyed.rates, loop.rates, at_least=10),
        ratio("delete_vs_mark", "delete / mark", delete.rates, plain.rates, at_least=1.3),
        ratio("keyed_vs_keyless", "1,000 keys / none", keyed.rates, plain.rates),
    ]
    for name, arm in (("", plain), ("_keyed", keyed)):
        each = [result["cpu"] / result["published"] * 1e6 for result in arm.results]
        text = f"Python of the {arm.name}, processor time a row"
        figures.append(figure(f"python_us_per_row{name}", text, each, unit="µs", at_most=15.0))
    return figures


def _slug(name: str) -> str:
    return "rate_" + re.sub(r"[^a-z0-9]+", "_", name.replace(",", "").lower())


def main() -> int:
    arguments = common.arguments(__doc__ or "")
    size = QUICK if arguments.quick else FULL
    _, loop = common.event_loop()
    with common.place(arguments.dsn) as place:
        figures, rates = asyncio.run(measure(place, size))
    notes = (
        f"{size.rows:,} rows of 300 bytes, {size.repeats} rounds, arms interleaved.",
        f"The relay runs on {loop}, its batch_size of 100 growing to 1,000; the naive loop runs on asyncio.",
        "pgbench: one client, the relay's own statements, prepared, under the relay's planner settings.",
    )
    print(common.report("drain", figures, notes))
    common.save(arguments.json, figures, loop=loop, rows=size.rows, rates=rates)
    return 0


if __name__ == "__main__":
    sys.exit(main())
