"""Which settings suit each peer best: every one of those that ``peers.toml`` lists as tried, by turns.

    python -m benchmarks.peers.tune [PEER …] [--rows 10000] [--rounds 3] [--dsn DSN]

Prints rows a second and processor time a row. On a busy machine look at the latter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from dataclasses import replace

from benchmarks import common
from benchmarks.common import Place
from benchmarks.peers import beside, environments
from benchmarks.peers.beside import Rounds, Size
from benchmarks.peers.environments import Peer
from benchmarks.turns import rotated


def drains(rows: int, rounds: int) -> Size:
    """So many rounds of drains, without latencies."""
    return Size(rows=rows, repeats=rounds, seconds={}, latency_rounds=0, timed=(), timeout=300.0)


async def tune(place: Place, peer: Peer, size: Size) -> None:
    found = [(replace(peer, settings=settings), Rounds()) for settings in peer.tried]
    python = environments.python(peer)
    for number in range(size.repeats):
        for variant, rounds in rotated(found, number):
            await beside.peer_drain(place, variant, python, size, rounds)
    for variant, rounds in sorted(found, key=lambda each: -statistics.median(each[1].rates)):
        spread = f"{min(rounds.rates):,.0f} to {max(rounds.rates):,.0f}"
        chosen = "chosen" if variant.settings == peer.settings else ""
        print(
            f"| {peer.name} | `{json.dumps(variant.settings)}` | {statistics.median(rounds.rates):,.0f} rows/s |"
            f" {spread} | {statistics.median(rounds.cpu):.0f} µs a row | {chosen} |",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="*", help="names; all without any")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dsn", help="a PostgreSQL database; a server is started without it")
    given = parser.parse_args()
    known = {peer.name: peer for peer in environments.peers()}
    if unknown := [name for name in given.peers if name not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    size = drains(given.rows, given.rounds)
    with common.place(given.dsn) as place:
        for name, peer in known.items():
            if not given.peers or name in given.peers:
                asyncio.run(tune(place, peer, size))
    return 0


if __name__ == "__main__":
    sys.exit(main())
