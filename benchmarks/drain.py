"""How fast a relay empties a backlog, against pgbench running the relay's own SQL and against a naive loop.

    python -m benchmarks.drain [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

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

from benchmarks import common, running
from benchmarks.catalogue import Mode
from benchmarks.children import TABLE, event_loop
from benchmarks.common import NO_PGBENCH, Place
from benchmarks.figures import Figure, Missing, Section, figure, ratio
from benchmarks.processes import drained
from benchmarks.turns import rotated
from outbox_core.store import END
from outbox_core.stores.postgres.sessions import PLANNED_ONCE, PLANNER
from outbox_core.stores.postgres.sql import query

CLAIM_PARAMETERS = (
    "term", "token", "ttl", "bytes", "own_tokens", "dead_hold_keys", "unordered_ids", "since", "after", "tenants",
    "keys", "blocked_topics", "batch", "without_content", "end", "last", "find_predecessors",
)  # fmt: skip
PUBLISH_PARAMETERS = ("ids", "tokens")
KEYS = 1000
CLAIM_ROWS = 1000
"""Of a claim of pgbench's: what a relay's claims grow to."""


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    rows: int
    repeats: int
    naive_seconds: float
    one_key: bool
    """Whether a backlog of one key is drained, too, on which no bar rests."""


SIZES = {
    Mode.SMOKE: Size(2_000, 1, 0.2, True),
    Mode.QUICK: Size(40_000, 3, 0.7, False),
    Mode.FULL: Size(200_000, 3, 3.0, True),
}


@dataclass
class Arm:
    """One way to empty the table, and what each round gave."""

    name: str
    keys: int
    run: Callable[[], Awaitable[dict[str, Any]]]
    rates: list[float] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


async def pgbench(place: Place, program: str, rows: int) -> dict[str, Any]:
    """One client, the relay's own statements prepared, the relay's own session settings."""
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
        "keys": "{}", "blocked_topics": "{}", "batch": CLAIM_ROWS, "bytes": 8 * 1024 * 1024, "own_tokens": "{}",
        "dead_hold_keys": "false", "without_content": "false", "end": END[0].isoformat(), "last": END[1],
        "unordered_ids": "{}", "find_predecessors": "true",
    }  # fmt: skip
    settings = PLANNER | PLANNED_ONCE
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        process = await asyncio.create_subprocess_exec(
            program, "-n", "-M", "prepared", "-c", "1", "-t", str(rows // CLAIM_ROWS), "-f", file.name,
            *(f"--define={name}={value}" for name, value in values.items()), place.dsn,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"PGOPTIONS": " ".join(f"-c {name}={value}" for name, value in settings.items())},
        )  # fmt: skip
        output, errors = await asyncio.wait_for(process.communicate(), 600)
    found = re.search(rb"tps = ([0-9.]+)", output)
    if found is None or process.returncode != 0:
        raise RuntimeError(f"pgbench failed:\n{output.decode()}{errors.decode()}")
    return {"rate": float(found[1]) * CLAIM_ROWS}


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
        Arm("relay, 1,000 keys", KEYS, lambda: drained(place, size.rows)),
        Arm("relay, delete", 0, lambda: drained(place, size.rows, on_published="delete")),
        Arm("naive loop", 0, lambda: naive(place, size.naive_seconds)),
    ]
    if size.one_key:
        found.append(Arm("relay, 1 key", 1, lambda: drained(place, size.rows)))
    if (program := place.pgbench) is not None:
        found += [
            Arm("pgbench", 0, partial(pgbench, place, program, size.rows)),
            Arm("pgbench, 1,000 keys", KEYS, partial(pgbench, place, program, size.rows)),
        ]
    return found


async def interleaved(connection: asyncpg.Connection, size: Size, turns: list[Arm]) -> None:
    """Every arm once a round on a table just loaded, each round beginning with another one."""
    for number in range(size.repeats):
        for arm in rotated(turns, number):
            await common.empty(connection)
            await common.load(connection, size.rows, keys=arm.keys)
            result = await arm.run()
            arm.rates.append(result["rate"])
            arm.results.append(result)
            print(f"round {number + 1}: {arm.name}: {result['rate']:,.0f} rows/s", file=sys.stderr)


async def measure(place: Place, size: Size) -> Section:
    turns = arms(place, size)
    async with common.database(place) as connection:
        await interleaved(connection, size, turns)
    return section(turns, size)


def section(turns: list[Arm], size: Size) -> Section:
    """What the arms gave, against each other."""
    notes = (
        f"{size.rows:,} rows of 300 bytes, rounds: {size.repeats}, arms interleaved.",
        f"The relay runs on {event_loop()[1]}, its batch_size of 100 growing to 1,000.",
        "pgbench: one client, the relay's own statements, prepared, under the relay's planner settings.",
        "Processor time a row is that of the relay's process; PostgreSQL's stands beside it.",
    )
    by_name = {arm.name: arm for arm in turns}
    against, missing = _against_pgbench(by_name)
    return Section(
        "drain", [*_rates(by_name), *against, *_against_the_rest(by_name)], notes,
        {"rates": {arm.name: arm.rates for arm in turns}}, missing,
    )  # fmt: skip


def _rates(by_name: dict[str, Arm]) -> list[Figure]:
    return [figure(_slug(arm.name), arm.name, arm.rates, unit="rows/s") for arm in by_name.values()]


def _against_pgbench(by_name: dict[str, Arm]) -> tuple[list[Figure], list[Missing]]:
    figures: list[Figure] = []
    missing: list[Missing] = []
    for name, keys in (("drain_vs_pgbench", ""), ("drain_keyed_vs_pgbench", ", 1,000 keys")):
        text = f"relay{keys} / pgbench, {CLAIM_ROWS:,} a claim{' of the same rows' if keys else ''}"
        if (yardstick := by_name.get(f"pgbench{keys}")) is None:
            missing.append(Missing(name, text, NO_PGBENCH, at_least=1.0))
        else:
            figures.append(ratio(name, text, by_name[f"relay{keys}"].rates, yardstick.rates, at_least=1.0))
    return figures, missing


def _against_the_rest(by_name: dict[str, Arm]) -> list[Figure]:
    plain, keyed = by_name["relay"], by_name["relay, 1,000 keys"]
    delete, loop = by_name["relay, delete"], by_name["naive loop"]
    figures = [
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


def bars(_: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    against = {f"drain{keys}_vs_{other}" for keys in ("", "_keyed") for other in ("pgbench", "naive")}
    return frozenset({*against, "delete_vs_mark", "python_us_per_row", "python_us_per_row_keyed"})


def run(place: Place, mode: Mode) -> Section:
    return common.run(measure(place, SIZES[mode]))


if __name__ == "__main__":
    sys.exit(running.main(__doc__, "drain"))
