"""How fast a relay empties a backlog, against pgbench running the relay's own SQL and against a naive loop.

    python -m benchmarks.drain [--dsn DSN] [--quick | --smoke] [--json FILE]

The dispatcher does nothing; everything else is as it is by default, with leadership, logging and a metrics observer.
The DSN's database gets a schema ``outbox_benchmark``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg

from benchmarks import common
from benchmarks.children import TABLE, event_loop
from benchmarks.common import Mode, Place
from benchmarks.figures import Figure, Section, figure, ratio
from benchmarks.processes import drained
from outbox_core.stores.postgres.sessions import PLANNER
from outbox_core.stores.postgres.sql import query

CLAIM_PARAMETERS = (
    "term", "token", "since", "after", "ttl", "tenants", "keys", "shut", "batch", "bytes",
)  # fmt: skip
PUBLISH_PARAMETERS = ("ids", "tokens")


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    rows: int
    repeats: int
    naive_seconds: float
    batches: tuple[int, ...]
    """Rows of a claim of pgbench's; the first is what bars are for, and what a relay's claims grow to."""


SIZES = {
    Mode.SMOKE: Size(2_000, 1, 0.2, (1000,)),
    Mode.QUICK: Size(20_000, 3, 1.0, (1000,)),
    Mode.FULL: Size(200_000, 5, 3.0, (1000, 500)),
}


@dataclass
class Arm:
    """One way to empty the table, and what each round gave."""

    name: str
    keys: int
    run: Callable[[], Awaitable[dict[str, Any]]]
    rates: list[float] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


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


async def naive(place: Place, seconds: float) -> dict[str, Any]:
    """Claim 100, dispatch one by one, acknowledge row by row, for a few seconds."""
    claim, acknowledge = common.sql("naive_claim.sql"), common.sql("naive_ack.sql")
    connection = await asyncpg.connect(place.dsn)
    done, started = 0, time.perf_counter()
    try:
        while time.perf_counter() < started + seconds:
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
        Arm("naive loop", 0, lambda: naive(place, size.naive_seconds)),
    ]
    if place.pgbench is not None:
        largest = size.batches[0]
        found += [
            *(
                Arm(f"pgbench, {batch:,} a claim", 0, partial(pgbench, place, size.rows, batch))
                for batch in size.batches
            ),
            Arm(
                f"pgbench, {largest:,} a claim, 1,000 keys", 1000, lambda: pgbench(place, size.rows, largest)
            ),
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


async def measure(place: Place, size: Size) -> Section:
    connection = await asyncpg.connect(place.dsn)
    try:
        await common.install(connection)
        turns = arms(place, size)
        await interleaved(connection, size, turns)
        await common.remove(connection)
    finally:
        await connection.close()
    notes = (
        f"{size.rows:,} rows of 300 bytes, rounds: {size.repeats}, arms interleaved.",
        f"The relay runs on {event_loop()[1]}, its batch_size of 100 growing to 1,000.",
        "pgbench: one client, the relay's own statements, prepared, under the relay's planner settings.",
        "Processor time a row is that of the relay's process; PostgreSQL's stands beside it.",
    )
    return Section(
        "drain", _figures({arm.name: arm for arm in turns}, size), notes,
        {"rates": {arm.name: arm.rates for arm in turns}},
    )  # fmt: skip


def _figures(by_name: dict[str, Arm], size: Size) -> list[Figure]:
    plain, keyed = by_name["relay"], by_name["relay, 1,000 keys"]
    delete, loop = by_name["relay, delete"], by_name["naive loop"]
    figures = [figure(_slug(arm.name), arm.name, arm.rates, unit="rows/s") for arm in by_name.values()]
    for at, batch in enumerate(size.batches):
        yardstick = by_name.get(f"pgbench, {batch:,} a claim")
        if yardstick is not None:
            name = f"_{batch}" if at else ""
            figures.append(
                ratio(
                    f"drain_vs_pgbench{name}",
                    f"relay / pgbench, {batch:,} a claim",
                    plain.rates,
                    yardstick.rates,
                    at_least=1.0,
                )
            )
    same_keys = by_name.get(f"pgbench, {size.batches[0]:,} a claim, 1,000 keys")
    if same_keys is not None:
        text = f"relay, 1,000 keys / pgbench, {size.batches[0]:,} a claim of the same rows"
        figures.append(ratio("drain_keyed_vs_pgbench", text, keyed.rates, same_keys.rates, at_least=1.0))
    figures += [
        ratio("drain_vs_naive", "relay / naive loop", plain.rates, loop.rates, at_least=10.0),
        ratio("drain_keyed_vs_naive", "relay, 1,000 keys / naive loop", keyed.rates, loop.rates, at_least=10),
        ratio("delete_vs_mark", "delete / mark", delete.rates, plain.rates, at_least=1.3),
        ratio("keyed_vs_keyless", "1,000 keys / none", keyed.rates, plain.rates),
    ]
    for name, arm in (("", plain), ("_keyed", keyed), ("_delete", delete)):
        own, server = (
            [result[whose] / result["published"] * 1e6 for result in arm.results]
            for whose in ("cpu", "server_cpu")
        )
        bar = {} if arm is delete else {"at_most": 15.0}
        figures.append(
            figure(f"python_us_per_row{name}", f"{arm.name}, processor time a row", own, unit="µs", **bar)
        )
        if any(server):
            text = f"PostgreSQL under the {arm.name}, processor time a row"
            figures.append(figure(f"postgres_us_per_row{name}", text, server, unit="µs"))
    return figures


def _slug(name: str) -> str:
    return "rate_" + re.sub(r"[^a-z0-9]+", "_", name.replace(",", "").lower())


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, run))
