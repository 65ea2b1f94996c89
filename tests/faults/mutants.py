"""Break the product in known ways and see whether a short run of faults notices.

    python -m tests.faults.mutants [--only NAME]... [--seed N] [--json FILE]

The mutations are those of `tests.mutations`, on a copy of the tree. The copy as it is must come out good; then each
must come out not good, and by the finding that is meant. About a minute each, on NATS.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import Mutation
from tests.mutations.tree import Tree, copied
from tests.revision import revision
from tests.writable import refuse_unwritable

LIMIT_SECONDS = 400.0


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation by its name, the kinds of faults that bring it to light, in which mode, and what they find."""

    name: str
    kinds: tuple[str, ...]
    mode: str
    finding: str

    @property
    def mutation(self) -> Mutation:
        (found,) = [each for each in MUTATIONS if each.name == self.name]
        return found


MUTANTS = (
    Mutant(
        "publish-without-fencing", ("freeze_relay", "block_event_loop"), "ordered", "stale_writes_accepted"
    ),
    Mutant("window-completed-before-ack", ("kill_broker",), "ordered", "lost"),
    Mutant("no-look-for-predecessors", ("kill_relay", "lose_broker_answers"), "ordered", "reordered"),
    Mutant("no-refund", ("stop_relay", "cut_broker", "lose_database_answers"), "ordered", "miscounted"),
    Mutant("leases-never-end", ("kill_relay", "kill_relay_at_a_point"), "side-by-side", "lost"),
    Mutant("enqueue-commits-by-itself", ("kill_writer",), "side-by-side", "phantom"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to; without figures when it did not come to its end."""

    exit_code: int | None
    figures: dict[str, Any]
    seconds: float
    output: str


def run(tree: Tree, mutant: Mutant, seed: int) -> Outcome:
    """A run of faults on the copy as it is now, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="outbox-mutants-") as folder:
        record, output = Path(folder) / "run.json", Path(folder) / "output.txt"
        began = time.monotonic()
        with output.open("wb") as stream:
            process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "tests.faults",
                        "--no-matrix",
                        "--broker",
                        "nats",
                        "--seed",
                        str(seed),
                        "--on-published",
                        "mark",
                    ),
                    *("--mode", mutant.mode, "--kinds", ",".join(mutant.kinds), "--json", str(record)),
                ],
                cwd=tree.root,
                env=tree.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            exit_code = _ended(process)
        figures = json.loads(record.read_text()) if record.exists() else {}
        return Outcome(exit_code, figures, time.monotonic() - began, output.read_text(errors="replace"))


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        # Asked first, so that it ends the servers it has started.
        process.send_signal(signal.SIGINT)
        return None
    finally:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def judged(mutant: Mutant, outcome: Outcome) -> dict[str, Any]:
    """Whether a broken product was found out, and how."""
    figures = outcome.figures
    caught = outcome.exit_code == 1 and figures.get("good") is False and bool(figures.get(mutant.finding))
    return {
        "name": mutant.name,
        "breaks": mutant.mutation.breaks,
        "finding": mutant.finding,
        "count": figures.get(mutant.finding, 0),
        "committed": figures.get("committed", 0),
        "mode": mutant.mode,
        "kinds": list(mutant.kinds),
        "caught": caught,
        "seconds": round(outcome.seconds, 1),
    }


def table(found: Sequence[dict[str, Any]]) -> str:
    lines: list[str] = []
    for each in found:
        verdict = "caught" if each["caught"] else "NOT CAUGHT"
        lines.append(
            f"  {verdict:<11}{each['name']:<30} {each['finding']}: {each['count']} of {each['committed']},"
            f" {each['seconds']:.0f} s"
        )
    return "\n".join(lines)


def unbroken(chosen: Sequence[Mutant]) -> Iterator[Mutant]:
    """Runs of the product as it is, with all that is to befall it broken: one for each mode."""
    for mode in dict.fromkeys(mutant.mode for mutant in chosen):
        kinds = dict.fromkeys(kind for mutant in chosen if mutant.mode == mode for kind in mutant.kinds)
        yield Mutant("whole", tuple(kinds), mode, "")


def main(arguments: argparse.Namespace) -> int:
    chosen = [each for each in MUTANTS if not arguments.only or each.name in arguments.only]
    found: list[dict[str, Any]] = []
    made_at, date = revision(), datetime.now(UTC)  # of the copy, whatever becomes of the tree meanwhile
    with copied() as tree:
        tree.check_imports()
        for whole in unbroken(chosen):
            outcome = run(tree, whole, arguments.seed)
            if outcome.exit_code != 0:
                _tell(
                    f"nothing was broken yet, and the run, {whole.mode}, ended with {outcome.exit_code}:\n"
                    f"{outcome.output}"
                )
                return 1
            _tell(f"whole, {whole.mode}: good, {outcome.seconds:.0f} s")
        for mutant in chosen:
            with tree.broken_by(mutant.mutation):
                outcome = run(tree, mutant, arguments.seed)
            found.append(judged(mutant, outcome))
            _tell(table(found[-1:]))
            if not found[-1]["caught"]:
                _tell(outcome.output)
            if arguments.json:
                content = {
                    **asdict(made_at),
                    "date": date.isoformat(timespec="seconds"),
                    "seed": arguments.seed,
                    "mutants": found,
                }
                arguments.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    caught = sum(each["caught"] for each in found)
    _tell(f"\n{table(found)}\n\n{caught} of {len(found)} caught")
    return 0 if caught == len(found) else 1


def _tell(text: str) -> None:
    print(text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.mutants", description="Break it, and be caught."
    )
    names = [mutant.name for mutant in MUTANTS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"one or more of: {', '.join(names)}"
    )
    parser.add_argument("--seed", type=int, default=1, help="decides the order of faults")
    parser.add_argument("--json", type=Path, help="also write the verdicts to a file")
    arguments = parser.parse_args()
    refuse_unwritable(parser, arguments, "json")
    return arguments


if __name__ == "__main__":
    sys.exit(main(_arguments()))
