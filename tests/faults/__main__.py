"""Break everything once and count what became of every message.

    python -m tests.faults [--seed N] [--broker kafka|nats|amqp] [--mode ordered|side-by-side]
                           [--on-published mark|delete] [--seconds S] [--kinds A,B] [--long [HOURS]]
                           [--soak SECONDS] [--no-matrix] [--records FILE …]
                           [--json FILE] [--report FILE] [--plot FILE]

Prints what happens as it happens and ends with one line of JSON, also when something went wrong with the session
itself. The exit code is 0 only when nothing was lost, made up, reordered, altered, written too late or sent again
without a reason, every planned fault was felt and recovered from in time, every row of the fault matrix has its proof,
and the long form has reached its counts. With some of the kinds alone there is no matrix: it needs them all. Files are
written after every run, so that what was found is kept. Ctrl-C ends a session with 130; what was found until then is
written, and is the last line, unless no run was done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from tests.faults import counts, matrix, plot, report
from tests.faults.kinds import KINDS
from tests.faults.plan import BROKERS
from tests.faults.plans import in_one_pass, tasks
from tests.faults.soak import WARM_UP_SECONDS
from tests.faults.suites import Done, run_all, suites
from tests.faults.summary import summary
from tests.faults.trial import Result, run
from tests.revision import Revision, last_changed, revision
from tests.writable import refuse_unwritable

FILES = ("json", "report", "plot")
INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""
SHORTEST_SOAK_SECONDS = WARM_UP_SECONDS + 60.0


@dataclass(slots=True)
class Session:
    """All that was found so far."""

    arguments: argparse.Namespace
    seed: int
    began: float = field(default_factory=time.monotonic)
    date: datetime = field(default_factory=lambda: datetime.now(UTC))
    revision: Revision = field(default_factory=revision)
    """At the beginning: of what the first processes were made."""
    results: list[Result] = field(default_factory=list[Result])
    done: list[Done] = field(default_factory=list[Done])
    proofs: list[matrix.Proof] = field(default_factory=list[matrix.Proof])
    told: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    """Of the session itself."""
    finished: bool = False
    interrupted: bool = False

    def tell(self, text: str) -> None:
        print(text, flush=True)
        self.told.append(text)

    def verdict(self) -> dict[str, Any]:
        """The object of the last line; good only once everything is done."""
        judged = self.arguments.long is not None
        found = summary(
            self.results,
            self.done,
            self.proofs,
            seed=self.seed,
            seconds=time.monotonic() - self.began,
            good=False,
            judged=judged,
        )
        good = (
            self.finished
            and bool(self.results)
            and all(result.good for result in self.results)
            and all(each.passed for each in self.done)
            and all(proof.good for proof in self.proofs)
            and not found["counts_short"]
            and not self.problems
        )
        form = "long" if judged else "soak" if self.arguments.soak is not None else "short"
        made_at = self.revision.until(revision())
        return found | {
            "form": form,
            "commit": made_at.commit,
            "dirty": made_at.dirty,
            "date": self.date.isoformat(timespec="seconds"),
            "command": self.command(),
            "finished": self.finished,
            "interrupted": self.interrupted,
            "problems": [*found["problems"], *self.problems],
            "good": good,
        }

    def command(self) -> str:
        """What makes the same run again, without the files that were written."""
        given = vars(self.arguments) | {"seed": self.seed}
        words = ["python -m tests.faults"]
        for name in ("seed", "broker", "mode", "on_published", "seconds", "kinds", "long", "soak"):
            value = given[name]
            if value is not None:
                option = f"--{name.replace('_', '-')}"
                words.append(f"{option} {value:g}" if isinstance(value, float) else f"{option} {value}")
        return " ".join([*words, "--no-matrix"] if given["no_matrix"] else words)

    def save(self) -> list[str]:
        """Write the files that were asked for, as far as there is something to write; what could not be, which is no
        reason to end a session that may have hours before it."""
        texts: dict[str, Callable[[], str]] = {
            "json": lambda: json.dumps(self.verdict()),
            "report": lambda: "\n".join(self.told),
            "plot": lambda: plot.plot(self.results).rstrip(),
        }
        failed: list[str] = []
        for name, text in texts.items():
            file: Path | None = getattr(self.arguments, name)
            if file is not None:
                try:
                    file.write_text(text() + "\n", encoding="utf-8")
                except OSError as error:
                    failed.append(f"a file could not be written: {error}")
                    self.tell(failed[-1])
        return failed


async def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything, in its order; what the last line says of it, also when it is interrupted."""
    seed: int = arguments.seed if arguments.seed is not None else secrets.randbelow(1_000_000)
    session = Session(arguments, seed)
    try:
        await _everything(session)
        session.finished = True
    except asyncio.CancelledError:
        session.interrupted = True
        session.problems.append("the session was interrupted")
        session.tell("interrupted")
        if not session.results:
            return session.verdict()  # files of an older session are worth more
    except Exception as error:
        # An hour of verdicts is not to be lost because of what came after them.
        session.problems.append(f"the session was broken off: {type(error).__name__}: {error}")
        session.tell(session.problems[-1])
    found = session.verdict()
    for shortfall in found["counts_short"]:
        session.tell(f"NOT REACHED {shortfall}")
    if failed := session.save():
        session.problems += failed
        return session.verdict()
    return found


async def _everything(session: Session) -> None:
    arguments, seed = session.arguments, session.seed
    for caution in cautions(arguments):
        session.tell(caution)
    for number, task in enumerate(tasks(arguments, seed)):
        reached = arguments.long is not None and number >= in_one_pass(arguments)
        if reached and time.monotonic() - session.began > arguments.long * 3600:
            break
        result = await run(task.plan, task.kinds, session.tell, task.goals)
        if _cancelled():
            raise asyncio.CancelledError  # it was broken off, though something else went wrong on its way out
        session.results.append(result)
        session.tell(report.table(result))
        session.save()
    if arguments.long is not None:
        session.tell("suites")
        for group in suites(seed):
            session.done += await asyncio.to_thread(run_all, group, session.tell)
            session.save()
    if has_matrix(arguments):
        try:
            session.proofs = await asyncio.to_thread(_prove, session)
        except Exception as error:
            # The runs themselves came to their end, and may be shown.
            session.problems.append(f"the matrix was broken off: {type(error).__name__}: {error}")
            session.tell(session.problems[-1])
    session.tell(report.timeline(session.results))
    if session.proofs:
        session.tell(matrix.table(session.proofs))


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def has_matrix(arguments: argparse.Namespace) -> bool:
    """Whether the rows of the matrix are to be proven: not in a soak, and not with some of the kinds alone."""
    return not arguments.no_matrix and arguments.soak is None and not _some_kinds(arguments)


def cautions(arguments: argparse.Namespace) -> list[str]:
    """What is to be known of a session before it begins."""
    found: list[str] = []
    if arguments.long is not None and (arguments.broker or arguments.mode):
        found.append(
            "the counts of a whole long run cannot be reached with --broker or --mode: they are those of every broker"
            " in both modes together, and this run will name what it lacks and not be good"
        )
    if _some_kinds(arguments) and not arguments.no_matrix and arguments.soak is None:
        found.append("the matrix is left out: its rows need all kinds, and --kinds names some")
    return found


def _some_kinds(arguments: argparse.Namespace) -> bool:
    return bool(arguments.kinds) and set(arguments.kinds.split(",")) != set(KINDS)


def _prove(session: Session) -> list[matrix.Proof]:
    felt = {
        (kind_or_point, result.plan.broker)
        for result in session.results
        for kind_or_point in (*result.by_kind, *counts.crash_points([result]))
    }
    missing = {kind: reason for result in session.results for kind, reason in result.missing.items()}
    return matrix.prove(
        felt,
        missing,
        session.seed,
        brokers={result.plan.broker for result in session.results},
        every_broker=session.arguments.long is not None,
        records=session.arguments.records,
        tell=session.tell,
    )


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments; ends the process with a message when they cannot be meant."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Break everything and count.")
    parser.add_argument(
        "--seed", type=int, help="decides brokers and order of faults; printed when not given"
    )
    parser.add_argument("--broker", choices=BROKERS, help="this one alone, instead of the seed's")
    parser.add_argument("--mode", choices=("ordered", "side-by-side"), help="this kind of run alone")
    parser.add_argument(
        "--on-published", choices=("mark", "delete"), help="in every run, instead of each in one of the modes"
    )
    parser.add_argument(
        "--seconds", type=float, help="at least so long for each run, which ends not before all was felt"
    )
    parser.add_argument(
        "--kinds", help=f"without the matrix unless all are named; some of: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--long", type=float, nargs="?", const=0.0, metavar="HOURS",
        help="every broker in both modes until the counts are reached, and then on until so many hours are over",
    )  # fmt: skip
    parser.add_argument(
        "--soak", type=float, metavar="SECONDS",
        help=f"break nothing and see what grows; at least {SHORTEST_SOAK_SECONDS:g}",
    )  # fmt: skip
    parser.add_argument("--no-matrix", action="store_true", help="leave out the tests of single rows")
    parser.add_argument(
        "--records", type=Path, nargs="+", default=(), metavar="FILE",
        help="JUnit records of test runs just made, oldest first; their results count, and no test is run again",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help="also write the last line to a file, after every run")
    parser.add_argument("--report", type=Path, help="also write what is printed to a file")
    parser.add_argument("--plot", type=Path, help="write the timeline as SVG")
    arguments = parser.parse_args(words)
    if arguments.kinds == "":
        parser.error("--kinds names none: leave it out for all of them")
    if arguments.kinds and (unknown := set(arguments.kinds.split(",")) - set(KINDS)):
        parser.error(f"unknown kinds: {', '.join(map(repr, sorted(unknown)))}; known are {', '.join(KINDS)}")
    for name, given in (("--long", arguments.long), ("--seconds", arguments.seconds)):
        if given is not None and not 0 <= given < inf:
            parser.error(f"{name} {given:g} is not so long as a run can be: give a number from 0 up")
    if arguments.soak == inf:
        parser.error("--soak inf would never end: give the seconds after which it is judged")
    if arguments.soak is not None and not arguments.soak >= SHORTEST_SOAK_SECONDS:
        parser.error(
            f"--soak {arguments.soak:g} is too short: the first {WARM_UP_SECONDS:g} s are not looked at,"
            f" give at least {SHORTEST_SOAK_SECONDS:g}"
        )
    if absent := [str(record) for record in arguments.records if not record.is_file()]:
        parser.error(f"no such records: {', '.join(absent)}; give files that pytest's --junitxml wrote")
    for record in arguments.records:
        if reason := matrix.unreadable(record):
            parser.error(
                f"--records {record} is no JUnit record: {reason}; give files that pytest's --junitxml wrote"
            )
    changed = last_changed()
    if old := [str(record) for record in arguments.records if record.stat().st_mtime < changed.at]:
        parser.error(
            f"of before {changed.file} was changed: {', '.join(old)}; run the tests again, or leave out --records"
        )
    if arguments.long is not None and arguments.soak is not None:
        parser.error(
            "--long and --soak are two forms of a session, and --long has a soak of its own: give one of them"
        )
    refuse_unwritable(parser, arguments, *FILES)
    return arguments


def exit_code(ended: dict[str, Any]) -> int:
    return INTERRUPTED if ended["interrupted"] else 0 if ended["good"] else 1


if __name__ == "__main__":
    try:
        ended = asyncio.run(main(parsed()))
    except KeyboardInterrupt:
        # Before it began, or again while it was ending.
        print("interrupted", flush=True)
        sys.exit(INTERRUPTED)
    # Only now: whatever the event loop had to say at its own end has been said.
    if ended["runs"] or not ended["interrupted"]:
        print(json.dumps(ended), flush=True)
    sys.exit(exit_code(ended))
