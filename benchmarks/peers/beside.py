"""The relay beside other libraries that deliver from a PostgreSQL table: pace and latency.

    python -m benchmarks.peers [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

Every library drains rows of the same payload to a handler that does nothing, not even parse what it is given, with the
best settings found for it, on uvloop, in a process and an environment of its own; ``peers.toml`` has versions, settings
and what each promises. Arms take turns. The DSN's database gets schemas ``outbox_benchmark`` and
``outbox_benchmark_peer``, dropped at the end.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import common, processes
from benchmarks.catalogue import Mode
from benchmarks.common import Place
from benchmarks.figures import Figure, Missing, Section, figure, percentile, ratio
from benchmarks.latency import latencies
from benchmarks.peers import environments
from benchmarks.peers.environments import Peer
from benchmarks.turns import guarded, rotated
from tests.services.sources import Unavailable

SCHEMA = "outbox_benchmark_peer"
BARS = {"pgqueuer": 3.0, "faststream_outbox": 6.0}
RATES = {"": 100, "_idle": 10}
"""Messages a second while latencies are taken, by what the names of their figures have in them. At the lower one each
message finds an idle relay, and tells it of itself."""


def quickest(kind: str) -> str:
    return f"commit to handler at {RATES[kind]}/s, p50, relay / quickest of the others"


RESOLUTION_MS = 0.1
KEYS = 1000


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    rows: int
    """For the relay and each of the others: a shorter drain is slower, for its beginning weighs more. One that would
    take the whole run gets a share of it, and has no bar."""
    repeats: int
    seconds: Mapping[str, float]
    """For which latencies are taken, by the kind of their rate."""
    latency_rounds: int
    timed: tuple[str, ...]
    """The peers of which latencies are taken. In a short run the quickest ones only."""
    timeout: float


EVERY_PEER = ("pgqueuer", "faststream-outbox", "txoutbox", "procrastinate")
SIZES = {
    Mode.SMOKE: Size(1_000, 1, {"": 0.2}, 1, ("txoutbox",), 120.0),
    Mode.QUICK: Size(12_000, 3, {"": 0.8}, 3, ("pgqueuer", "txoutbox"), 120.0),
    Mode.FULL: Size(60_000, 3, {"": 5.0, "_idle": 5.0}, 3, EVERY_PEER, 900.0),
}


@dataclass
class Rounds:
    """What each round gave: rows a second, processor time a row in µs, median latencies in ms, start in ms."""

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    latency: dict[str, list[float]] = field(default_factory=dict)
    """By the kind of their rate."""
    with_start: list[float] = field(default_factory=list)
    """Rows a second of a relay, counted from its making on."""
    start: list[float] = field(default_factory=list)
    """From the making of a relay to its first claim, connections and leadership included."""
    failure: str | None = None
    """Why it could not be measured to the end."""


async def peer_drain(place: Place, peer: Peer, python: Path, size: Size, rounds: Rounds) -> None:
    rows = rows_of(peer, size)
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
    rounds.with_start.append(size.rows / (size.rows / result["rate"] + result["start_seconds"]))
    rounds.start.append(result["start_seconds"] * 1000)
    rounds.cpu.append(result["cpu"] / result["published"] * 1e6)


async def relay_latency(
    place: Place, connection: asyncpg.Connection, size: Size, rounds: Rounds, kind: str
) -> None:
    await common.empty(connection)
    each = await latencies(place, RATES[kind], size.seconds[kind], mixed=False)
    rounds.latency.setdefault(kind, []).append(percentile(each.milliseconds, 0.5))


async def peer_latency(place: Place, peer: Peer, python: Path, size: Size, rounds: Rounds, kind: str) -> None:
    """The median of milliseconds from the return of COMMIT, in a process of the writer's own, to the handler."""
    rows = max(round(RATES[kind] * size.seconds[kind]), 10)
    receive = _order(place, peer, size, action="receive", rows=rows)
    write = _order(place, peer, size, action="write", rows=rows, rate=RATES[kind])
    async with (
        processes.started(peer.module, receive, python=str(python)) as receiver,
        asyncio.timeout(size.timeout),
    ):
        assert receiver.stdout is not None
        if await receiver.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{peer.name} does not deliver")
        commits: dict[str, float] = await processes.child(peer.module, write, python=str(python))
        output, _ = await receiver.communicate()
    arrivals: dict[str, float] = processes.result(peer.module, receiver, output)
    waits = [(arrivals[number] - at) * 1000 for number, at in commits.items()]
    rounds.latency.setdefault(kind, []).append(statistics.median(waits))


def _order(place: Place, peer: Peer, size: Size, **more: Any) -> dict[str, Any]:
    common_part = {"dsn": place.dsn, "schema": SCHEMA, "settings": peer.settings, "timeout": size.timeout}
    return common_part | more


Turn = Callable[[], Awaitable[None]]


async def measure(place: Place, pythons: dict[Peer, Path], missing: list[Missing], size: Size) -> Section:
    """Every arm once a round, the first ones by turns. A peer that fails does not take the others' figures with it."""
    plain, keyed, found = Rounds(), Rounds(), {peer: Rounds() for peer in pythons}
    async with common.database(place) as connection:
        drains: list[Turn] = [
            partial(relay_drain, place, connection, size, plain, 0),
            partial(relay_drain, place, connection, size, keyed, KEYS),
        ]
        drains += [
            guarded(rounds, partial(peer_drain, place, peer, pythons[peer], size, rounds))
            for peer, rounds in found.items()
        ]
        await _by_turns("drain", size.repeats, drains)
        for kind in size.seconds:
            waits: list[Turn] = [partial(relay_latency, place, connection, size, plain, kind)]
            waits += [
                guarded(rounds, partial(peer_latency, place, peer, pythons[peer], size, rounds, kind))
                for peer, rounds in found.items()
                if peer.name in size.timed
            ]
            await _by_turns(f"latency at {RATES[kind]}/s", size.latency_rounds, waits)
        await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    missing = [
        *missing,
        *(
            line
            for peer, rounds in found.items()
            if rounds.failure is not None
            for line in not_measured(peer, rounds.failure)
        ),
    ]
    found = {peer: rounds for peer, rounds in found.items() if rounds.failure is None}
    if lacking := untimed(found, size.timed):
        why = f"could not be timed: {', '.join(lacking)}"
        missing += [
            Missing(f"latency{kind}_p50_vs_peers", quickest(kind), why, at_most=1.0) for kind in size.seconds
        ]
    figures = [
        figure("beside_peers_relay_rate", "relay", plain.rates, unit="rows/s"),
        figure("beside_peers_relay_keyed_rate", "relay, 1,000 keys", keyed.rates, unit="rows/s"),
        figure("beside_peers_relay_start_ms", "relay, made to first claim", plain.start, unit="ms"),
        *(line for peer, rounds in found.items() for line in _figures(peer, plain, keyed, rounds)),
        *(line for kind in size.seconds for line in latencies_beside(plain, found, kind, whole=not lacking)),
    ]
    versions = {peer.name: peer.version for peer in found}
    return Section("peers", figures, _notes(found, size), {"versions": versions}, missing)


async def _by_turns(what: str, repeats: int, arms: list[Turn]) -> None:
    for number in range(repeats):
        for arm in rotated(arms, number):
            await arm()
        print(f"round {number + 1} of {repeats}: {what}", file=sys.stderr)


def not_measured(peer: Peer, why: str) -> list[Missing]:
    """The figures that there would be with this peer."""
    why, bar = " ".join(why.split()), BARS.get(peer.slug)
    return [
        Missing(f"drain_vs_{peer.slug}", f"relay / {peer.name}", why, at_least=bar),
        Missing(f"drain_keyed_vs_{peer.slug}", f"relay, 1,000 keys / {peer.name}, none", why, at_least=bar),
    ]


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
        ratio(
            f"drain_with_start_vs_{name}",
            f"relay with its start / {peer.name}",
            plain.with_start,
            rounds.rates,
        ),
        figure(f"{name}_rate", peer.name, rounds.rates, unit="rows/s"),
        ratio(f"cpu_vs_{name}", f"processor time a row, relay / {peer.name}", plain.cpu, rounds.cpu),
    ]


def untimed(found: dict[Peer, Rounds], wanted: Iterable[str]) -> list[str]:
    """Those whose latencies were to be taken and were not."""
    timed = {peer.name for peer, rounds in found.items() if rounds.latency}
    return [name for name in wanted if name not in timed]


def latencies_beside(plain: Rounds, found: dict[Peer, Rounds], kind: str, *, whole: bool) -> list[Figure]:
    """Beside the quickest of the others, unless one of them is missing: it may have been that one."""
    timed = {peer: rounds.latency[kind] for peer, rounds in found.items() if kind in rounds.latency}
    ours, at = plain.latency[kind], f"at {RATES[kind]}/s, p50"
    return [
        *([_beside_the_quickest(kind, ours, [*timed.values()])] if whole else []),
        figure(f"beside_peers_relay{kind}_p50_ms", f"commit to dispatcher {at}, relay", ours, unit="ms"),
        *(
            figure(f"{peer.slug}{kind}_p50_ms", f"commit to handler {at}, {peer.name}", each, unit="ms")
            for peer, each in timed.items()
        ),
    ]


def _beside_the_quickest(kind: str, relay: list[float], others: list[list[float]]) -> Figure:
    """A median of 0 or less says that a writer was too busy to stamp its commits in time: then nothing is judged."""
    best = [min(each) for each in zip(*others, strict=True)]
    valid = min(relay + best) > 0
    ours, theirs = ([max(each, RESOLUTION_MS) for each in values] for values in (relay, best))
    return ratio(f"latency{kind}_p50_vs_peers", quickest(kind), ours, theirs, at_most=1.0, valid=valid)


def _notes(peers: Iterable[Peer], size: Size) -> list[str]:
    peers = list(peers)
    shares = ", ".join(
        f"{rows_of(peer, size):,} for {peer.name}" for peer in peers if rows_of(peer, size) < size.rows
    )
    fewer = f" ({shares})" if shares else ""
    clock = (
        "The clock of the others runs from the start of their worker, its connections already open, until nothing is"
        " left; the relay's from the beginning of its first claim until the last row is on record as published."
    )
    start = (
        "A relay with its start is timed from its making on: connecting, checking the schema and the election are in"
        " it, of which the others have the connecting behind them. What is fair lies between the two."
    )
    return [
        f"{size.rows:,} rows of 300 bytes each{fewer}, rounds: {size.repeats}, by turns, every library on uvloop.",
        f"Latencies of {', '.join(size.timed)} at {_rates(size)} a round, rounds: {size.latency_rounds}.",
        clock,
        start,
        *(f"{peer.name} {peer.version}: {peer.promises} {peer.differs}" for peer in peers),
    ]


def _rates(size: Size) -> str:
    return " and ".join(f"{RATES[kind]}/s, {seconds:g} s" for kind, seconds in size.seconds.items())


def rows_of(peer: Peer, size: Size) -> int:
    return max(round(size.rows * peer.share), 10)


def bars(mode: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    drains = {f"drain{keys}_vs_{slug}" for slug in BARS for keys in ("", "_keyed")}
    return frozenset({*drains, *(f"latency{kind}_p50_vs_peers" for kind in SIZES[mode].seconds)})


def run(place: Place, mode: Mode) -> Section:
    pythons: dict[Peer, Path] = {}
    missing: list[Missing] = []
    for peer in environments.peers():
        try:
            pythons[peer] = environments.python(peer)
        except Unavailable as reason:
            missing += not_measured(peer, str(reason))
    return common.run(measure(place, pythons, missing, SIZES[mode]))
