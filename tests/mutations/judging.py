"""Running tests on the copy, and judging whether they noticed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.mutation import Mutation, belongs
from tests.mutations.recorder import VARIABLE
from tests.mutations.tree import Tree

SMOKE = "tests/integration/relay/test_draining.py::test_run_once_delivers_what_is_due"
"""Passes whatever is broken: a product that does nothing at all any more would prove nothing."""
LIMIT_SECONDS = 180.0
_FAILED = 1
_TIMEOUT = "Failed: Timeout"


@dataclass(frozen=True, slots=True)
class Ran:
    """One test: whether its own code passed or failed, or something around it, and the first line of why."""

    test: str
    when: str
    outcome: str
    reason: str

    @property
    def noticed(self) -> bool:
        """A test that found something wrong, which one that was cut off at its time limit has not."""
        return (self.when, self.outcome) == ("call", "failed") and not self.reason.startswith(_TIMEOUT)


@dataclass(frozen=True, slots=True)
class Session:
    """One run of pytest."""

    exit_code: int | None
    """None when it had to be ended."""
    ran: tuple[Ran, ...]
    seconds: float
    output: str

    def of(self, test: str) -> list[Ran]:
        return [each for each in self.ran if belongs(each.test, test)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutation. ``flaws`` say why it does not count as caught."""

    mutation: Mutation
    caught_by: tuple[Ran, ...]
    flaws: tuple[str, ...]
    seconds: float

    @property
    def caught(self) -> bool:
        return bool(self.caught_by) and not self.flaws


def flaws_of_whole(tests: Sequence[str], session: Session) -> list[str]:
    """What speaks against the tests themselves: on the copy as it is, each must run and pass."""
    flaws = [] if session.exit_code == 0 else [f"pytest ended with {session.exit_code} on the unbroken copy"]
    if session.exit_code not in (0, _FAILED):
        return flaws
    for test in tests:
        ran = session.of(test)
        if not any(each.outcome == "passed" for each in ran):
            flaws.append(f"{test} did not run")
        flaws += [f"{each.test} {each.outcome}: {each.reason}" for each in ran if each.outcome != "passed"]
    return flaws


def judged(mutation: Mutation, session: Session) -> Verdict:
    """A mutation is caught when every test it names noticed, and the product was not broken as a whole."""
    noticed = [each for test in mutation.tests for each in session.of(test) if each.noticed]
    flaws: list[str] = []
    if session.exit_code != _FAILED:
        flaws.append(f"pytest ended with {session.exit_code} instead of {_FAILED}")
    for test in mutation.tests:
        if not any(belongs(each.test, test) for each in noticed):
            seen = sorted({f"{each.when} {each.outcome} {each.reason}".strip() for each in session.of(test)})
            flaws.append(f"{test} did not notice: {'; '.join(seen) or 'it did not run'}")
    if [each.outcome for each in session.of(SMOKE)] != ["passed"]:
        flaws.append("a relay delivers nothing any more: too much is broken")
    return Verdict(mutation, tuple(noticed), tuple(flaws), session.seconds)


def run(tree: Tree, tests: Sequence[str], *, postgres: str, limit: float = LIMIT_SECONDS) -> Session:
    """Run tests on the copy, with a PostgreSQL that is there already, for ``limit`` seconds at most."""
    with tempfile.TemporaryDirectory(prefix="outbox-mutations-") as folder:
        record, output = Path(folder) / "record.jsonl", Path(folder) / "output.txt"
        began = time.monotonic()
        with output.open("wb") as stream:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short"),
                    *("-p", "tests.mutations.recorder", "-p", "no:randomly", "-p", "no:cacheprovider"),
                    *dict.fromkeys([SMOKE, *tests]),
                ],
                cwd=tree.root,
                env={**tree.environment, VARIABLE: str(record), "OUTBOX_TEST_POSTGRES_URL": postgres},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            exit_code = _ended(process, limit)
        seconds = time.monotonic() - began
        lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
        text = output.read_text(errors="replace")
    for file in (file for line in lines for file in line.get("imported", ())):
        if not Path(file).is_relative_to(tree.root):
            raise RuntimeError(f"the tests imported {file} instead of its copy below {tree.root}")
    return Session(exit_code, tuple(_ran(line) for line in lines if "test" in line), seconds, text)


def _ended(process: subprocess.Popen[bytes], limit: float) -> int | None:
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _ran(line: dict[str, str]) -> Ran:
    reason = (line["reason"].strip().splitlines() or [""])[0]
    return Ran(line["test"], line["when"], line["outcome"], reason[:200])
