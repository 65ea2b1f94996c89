"""Break everything once and count what became of every message.

    python -m tests.faults [--seed N] [--broker kafka|nats|amqp] [--seconds S] [--kinds A,B] [--long HOURS]
                           [--soak SECONDS] [--no-matrix] [--records FILE …] [--json FILE] [--plot FILE]

Prints what happens as it happens and ends with one line of JSON. The exit code is 0 only when nothing was lost, made
up, reordered or written too late, every planned fault was felt, and every row of the fault matrix has its proof.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import matrix, report
from tests.faults.kinds import KINDS
from tests.faults.plan import BROKERS, Broker, Plan
from tests.faults.trial import Result, run

SIDE_BY_SIDE_KINDS = (
    "kill_relay", "kill_relay_at_a_point", "freeze_relay", "kill_writer", "lose_commit_answers",
    "lose_database_answers", "lose_broker_answers", "kill_postgres", "kill_broker", "terminate_sessions",
)  # fmt: skip
"""What is broken while relays work side by side in the short form: whatever decides between two owners of a row."""
SOAK_SECONDS = 300.0
SOAK_RATE = 60.0
SOAK_RETENTION = 30.0
"""So short that a table reaches its size while it is watched."""


def plans(arguments: argparse.Namespace, seed: int) -> Iterator[tuple[Plan, list[str]]]:
    """The runs, one after another; endless in the long form. One without kinds is a soak: nothing is broken."""
    if arguments.soak is not None:
        yield _soak(arguments, seed, arguments.soak), []
        return
    chosen: list[str] = arguments.kinds.split(",") if arguments.kinds else list(KINDS)
    long = arguments.long is not None
    while True:
        first = BROKERS.index(arguments.broker) if arguments.broker else seed % len(BROKERS)
        others = 0 if arguments.broker else 1
        broker, second = BROKERS[first], BROKERS[(first + others) % len(BROKERS)]
        yield _plan(arguments, seed, broker, ordered=True), chosen
        few = chosen if long else [kind for kind in chosen if kind in SIDE_BY_SIDE_KINDS]
        if few:
            yield _plan(arguments, seed, second, ordered=False), few
        if not long:
            return
        yield _soak(arguments, seed, SOAK_SECONDS), []
        seed += 1


def _plan(arguments: argparse.Namespace, seed: int, broker: Broker, *, ordered: bool) -> Plan:
    seconds = arguments.seconds if arguments.seconds is not None else (300.0 if arguments.long else 0.0)
    return Plan(seed=seed, broker=broker, seconds=seconds, ordered=ordered, relays=2 if ordered else 3)


def _soak(arguments: argparse.Namespace, seed: int, seconds: float) -> Plan:
    broker = arguments.broker or BROKERS[seed % len(BROKERS)]
    return Plan(
        seed=seed, broker=broker, seconds=seconds, ordered=True, rate=SOAK_RATE, retention=SOAK_RETENTION
    )


async def main(arguments: argparse.Namespace) -> int:
    seed: int = arguments.seed if arguments.seed is not None else secrets.randbelow(1_000_000)
    began, results = time.monotonic(), list[Result]()
    for plan, kinds in plans(arguments, seed):
        if arguments.long is not None and time.monotonic() - began > arguments.long * 3600:
            break
        result = await run(plan, kinds, _tell)
        results.append(result)
        _tell(report.table(result))
    hit = {kind for result in results for kind in result.by_kind}
    missing = {kind: reason for result in results for kind, reason in result.missing.items()}
    proofs = list[matrix.Proof]()
    if not arguments.no_matrix and arguments.soak is None:
        proofs = matrix.prove(
            hit,
            missing,
            seed,
            every_broker=arguments.long is not None,
            records=arguments.records,
            tell=_tell,
        )
    if arguments.plot:
        arguments.plot.write_text(report.plot(results))
    _tell(report.timeline(results))
    if proofs:
        _tell(matrix.table(proofs))
    good = bool(results) and all(result.good for result in results) and all(proof.good for proof in proofs)
    line = report.summary(results, proofs, seed, time.monotonic() - began, good)
    if arguments.json:
        arguments.json.write_text(line + "\n")
    print(line)
    return 0 if good else 1


def _tell(text: str) -> None:
    print(text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Break everything and count.")
    parser.add_argument(
        "--seed", type=int, help="decides brokers and order of faults; printed when not given"
    )
    parser.add_argument("--broker", choices=BROKERS, help="this one alone, instead of the seed's")
    parser.add_argument(
        "--seconds", type=float, help="at least so long for each run (0; 300 in the long form)"
    )
    parser.add_argument("--kinds", help=f"some of: {', '.join(KINDS)}")
    parser.add_argument(
        "--long", type=float, nargs="?", const=4.0, metavar="HOURS", help="run after run, 4 h"
    )
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="break nothing and see what grows")
    parser.add_argument("--no-matrix", action="store_true", help="leave out the tests of single rows")
    parser.add_argument(
        "--records", type=Path, nargs="+", default=(), metavar="FILE",
        help="JUnit records of test runs just made, oldest first; their results count, and no test is run again",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help="also write the last line to a file")
    parser.add_argument("--plot", type=Path, help="write the timeline as SVG")
    arguments = parser.parse_args()
    if arguments.kinds and (unknown := set(arguments.kinds.split(",")) - set(KINDS)):
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}; known are {', '.join(KINDS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(asyncio.run(main(_arguments())))
