"""The relay beside other libraries that deliver from a PostgreSQL table: pace and latency.

    python -m benchmarks.peers [--dsn DSN] [--quick | --smoke] [--json FILE]

Every library drains rows of the same payload to a handler that does nothing, with the best settings found for it, on
uvloop, in a process and an environment of its own; ``peers.toml`` has versions, settings and what each promises. Arms
take turns. The DSN's database gets schemas ``outbox_benchmark`` and ``outbox_benchmark_peer``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import common, processes
from benchmarks.common import Mode, Place
from benchmarks.figures import Figure, Section, figure, percentile, ratio
from benchmarks.latency import latencies
from benchmarks.peers import environments
from benchmarks.peers.environments import Peer

SCHEMA = "outbox_benchmark_peer"
BARS = {"pgqueuer": 3.0, "faststream_outbox": 6.0}
RATE = 100
"""Messages a second while latencies are taken."""
RESOLUTION_MS = 0.1
KEYS = 1000


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    rows: int
    repeats: int
    seconds: float
    latency_rounds: int
    latency_peers: int
    """Of how many peers latencies are taken, the first ones of the file."""
    timeout: float


SIZES = {
    Mode.SMOKE: Size(1_000, 1, 0.2, 1, 1, 120.0),
    Mode.QUICK: Size(10_000, 2, 1.5, 1, 4, 120.0),
    Mode.FULL: Size(100_000, 5, 10.0, 3, 4, 900.0),
}


@dataclass
class Rounds:
    """What each round gave: rows a second, processor time a row in µs, median latency in ms."""

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)


async def peer_drain(place: Place, peer: Peer, python: Path, size: Size, rounds: Rounds) -> None:
    rows = max(round(size.rows * peer.share), 10)
    order = _order(place, peer, size, action="drain", rows=rows)
    result = await processes.child(peer.module, order, python=str(python))
    rounds.rates.append(result["published"] / result["seconds"])
    rounds.cpu.append(result["cpu"] / result["published"] * 1e6)


async def relay_drain(
    place: Place, connection: asyncpg.Connection, size: Size, rounds: Rounds, keys: int
) -> None:
    await common.empty(connection)
    await common.load(connection, size.rows, keys=keys)
    result = await processes.drained(place, size.rows)
    rounds.rates.append(result["rate"])
    rounds.cpu.append(result["cpu"] / result["published"] * 1e6)


async def peer_latency(place: Place, peer: Peer, python: Path, size: Size) -> float:
    """The median of milliseconds from the return of COMMIT, in a process of the writer's own, to the handler."""
    rows = max(round(RATE * size.seconds), 10)
    receive = _order(place, peer, size, action="receive", rows=rows)
    write = _order(place, peer, size, action="write", rows=rows, rate=RATE)
    async with (
        processes.started(peer.module, receive, python=str(python)) as receiver,
        asyncio.timeout(size.timeout),
    ):
        assert receiver.stdout is not None
        if await receiver.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{peer.name} does not deliver")
        commits: dict[str, float] = await processes.child(peer.module, write, python=str(python))
        output, _ = await receiver.communicate()
    arrivals: dict[str, float] = json.loads(output)
    return statistics.median((arrivals[number] - at) * 1000 for number, at in commits.items())


def _order(place: Place, peer: Peer, size: Size, **more: Any) -> dict[str, Any]:
    common_part = {"dsn": place.dsn, "schema": SCHEMA, "settings": peer.settings, "timeout": size.timeout}
    return common_part | more


async def measure(place: Place, pythons: dict[Peer, Path], size: Size) -> Section:
    connection = await asyncpg.connect(place.dsn)
    plain, keyed, found = Rounds(), Rounds(), {peer: Rounds() for peer in pythons}
    try:
        await common.install(connection)
        for number in range(size.repeats):
            await relay_drain(place, connection, size, plain, 0)
            for peer, python in pythons.items():
                await peer_drain(place, peer, python, size, found[peer])
            await relay_drain(place, connection, size, keyed, KEYS)
            shown = ", ".join(f"{peer.name} {rounds.rates[-1]:,.0f}" for peer, rounds in found.items())
            print(f"round {number + 1}: relay {plain.rates[-1]:,.0f}, {shown} rows/s", file=sys.stderr)
        for _ in range(size.latency_rounds):
            await common.empty(connection)
            plain.latency.append(
                percentile(await latencies(place, RATE, max(size.seconds, 0.1), mixed=False), 0.5)
            )
            for peer, python in list(pythons.items())[: size.latency_peers]:
                found[peer].latency.append(await peer_latency(place, peer, python, size))
        await common.remove(connection)
        await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    finally:
        await connection.close()
    figures = [
        figure("beside_peers_relay_rate", "relay", plain.rates, unit="rows/s"),
        figure("beside_peers_relay_keyed_rate", "relay, 1,000 keys", keyed.rates, unit="rows/s"),
        *(line for peer, rounds in found.items() for line in _figures(peer, plain, keyed, rounds)),
        *_latencies(plain, found),
    ]
    return Section(
        "peers", figures, _notes(pythons, size), {"versions": {p.name: p.version for p in pythons}}
    )


def _figures(peer: Peer, plain: Rounds, keyed: Rounds, rounds: Rounds) -> list[Figure]:
    name, bar = peer.slug, BARS.get(peer.slug)
    return [
        ratio(f"drain_vs_{name}", f"relay / {peer.name}", plain.rates, rounds.rates, at_least=bar),
        ratio(
            f"drain_keyed_vs_{name}",
            f"relay, 1,000 keys / {peer.name}, none",
            keyed.rates,
            rounds.rates,
            at_least=bar,
        ),
        figure(f"{name}_rate", peer.name, rounds.rates, unit="rows/s"),
        ratio(f"cpu_vs_{name}", f"processor time a row, relay / {peer.name}", plain.cpu, rounds.cpu),
    ]


def _latencies(plain: Rounds, found: dict[Peer, Rounds]) -> list[Figure]:
    """A median of 0 or less says that a writer was too busy to stamp its commits in time: then nothing is judged."""
    timed = {peer: rounds.latency for peer, rounds in found.items() if rounds.latency}
    best = [min(each) for each in zip(*timed.values(), strict=True)]
    valid = min(plain.latency + best) > 0
    ours, theirs = ([max(each, RESOLUTION_MS) for each in values] for values in (plain.latency, best))
    return [
        ratio(
            "latency_p50_vs_peers",
            f"commit to handler at {RATE}/s, p50, relay / quickest of the others",
            ours,
            theirs,
            at_most=1.0,
            valid=valid,
        ),
        figure("beside_peers_relay_p50_ms", "commit to dispatcher, p50, relay", plain.latency, unit="ms"),
        *(
            figure(f"{peer.slug}_p50_ms", f"commit to handler, p50, {peer.name}", each, unit="ms")
            for peer, each in timed.items()
        ),
    ]


def _notes(pythons: dict[Peer, Path], size: Size) -> list[str]:
    fewer = ", ".join(_fewer(peer, size) for peer in pythons if peer.share < 1)
    clock = (
        "The clock of the others runs from the start of their worker, its connections already open, until nothing is"
        " left; the relay's from the beginning of its first claim until the last row is on record as published."
    )
    return [
        f"{size.rows:,} rows of 300 bytes ({fewer}), rounds: {size.repeats}, by turns, every library on uvloop.",
        clock,
        *(f"{peer.name} {peer.version}: {peer.promises} {peer.differs}" for peer in pythons),
    ]


def _fewer(peer: Peer, size: Size) -> str:
    return f"{max(round(size.rows * peer.share), 10):,} for {peer.name}"


def run(place: Place, mode: Mode) -> Section:
    pythons = {peer: environments.python(peer) for peer in environments.peers()}
    return common.run(measure(place, pythons, SIZES[mode]))
