"""Proves every row of the fault matrix, by what the nemesis did in this run and by the tests that rows name."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from tests.faults.plan import BROKERS, Broker
from tests.faults.processes import ROOT
from tests.faults.rows import ROWS, Row
from tests.services.sources import missing_is_failure

TESTS_SECONDS = 900
WORKERS = 2


class Fate(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Ran:
    """One test: its id, what became of it and why, and whether it had failed before it passed."""

    test: str
    fate: Fate
    why: str = ""
    second_try: bool = False


class Standing(StrEnum):
    """How much of a row was shown. Only `NOT_SHOWN` is a failure."""

    SHOWN = "shown"
    IN_PART = "in part"
    """All of it that this machine can have, and not the rest."""
    ABSENT = "absent"
    """Nothing of it, because this machine can have none."""
    NOT_SHOWN = "NOT SHOWN"


@dataclass(frozen=True, slots=True)
class Proof:
    """What was shown of one row. ``gaps`` say what was not; ``absent`` what this machine cannot have.

    ``second_try`` has the tests that failed first, beside others, and passed when they were run once more.
    """

    row: Row
    shown: tuple[str, ...]
    gaps: tuple[str, ...]
    absent: tuple[str, ...]
    second_try: tuple[str, ...] = ()

    @property
    def standing(self) -> Standing:
        if self.gaps or not (self.shown or self.absent):
            return Standing.NOT_SHOWN
        if not self.absent:
            return Standing.SHOWN
        return Standing.IN_PART if self.shown else Standing.ABSENT

    @property
    def good(self) -> bool:
        return self.standing is not Standing.NOT_SHOWN


def absent_rows(proofs: Sequence[Proof]) -> int:
    """How many rows were shown in part or not at all because this machine lacks something: good, and no full proof."""
    return sum(proof.standing in (Standing.IN_PART, Standing.ABSENT) for proof in proofs)


def gaps(proofs: Sequence[Proof]) -> list[str]:
    """Everything that was not shown and had to be, with the number of its row."""
    return [f"row {proof.row.number}: {gap}" for proof in proofs for gap in proof.gaps]


def second_try(proofs: Sequence[Proof]) -> list[str]:
    """Every test that proves something and needed a second try to."""
    return sorted({test for proof in proofs for test in proof.second_try})


def prove(
    felt: set[tuple[str, Broker]],
    missing: Mapping[str, str],
    seed: int,
    *,
    brokers: Collection[Broker] = (),
    every_broker: bool,
    records: Sequence[Path] = (),
    tell: Callable[[str], None],
) -> list[Proof]:
    """Run the tests of every row, and say of each row what was shown. ``felt`` are the kinds that were hit and the
    moments at which relays died, and with which broker.

    With ``every_broker`` each kind must have been felt on each of the ``brokers`` that the run went through.
    With ``records`` of test runs just made, as pytest writes them, their results count and nothing is run again.
    """
    chosen = {row.number: wanted(row, seed, every_broker=every_broker) for row in ROWS}
    tests = sorted({test for several in chosen.values() for test in several})
    tell(f"matrix: {len(tests)} tests for {len(ROWS)} rows")
    ran = latest(records) if records else run_tests(tests)
    each = brokers if every_broker else ()
    return [judge(row, chosen[row.number], felt, missing, ran, brokers=each) for row in ROWS]


def wanted(row: Row, seed: int, *, every_broker: bool) -> tuple[str, ...]:
    """The tests of a row that are to run: of the brokers' all, or those of the one whose turn it is."""
    turn: list[Broker] = [
        broker for broker in (*BROKERS[seed % 3 :], *BROKERS[: seed % 3]) if broker in row.by_broker
    ]
    picked = turn if every_broker else turn[:1]
    return row.tests + tuple(test for broker in picked for test in row.by_broker[broker])


def judge(
    row: Row,
    tests: Sequence[str],
    felt: set[tuple[str, Broker]],
    missing: Mapping[str, str],
    ran: Sequence[Ran],
    *,
    brokers: Collection[Broker] = (),
) -> Proof:
    """A row is shown when all its kinds were felt and all its tests passed; what cannot be had is said.

    A kind must have been felt on each of ``brokers``, and a relay have died there at each point of the row; without
    them, a kind on any, and no points are asked for. Where nothing may be missing
    (`missing_is_failure`), what this machine cannot have and every test that was skipped is a gap.
    """
    shown: list[str] = []
    absent: list[str] = []
    gaps: list[str] = []
    again: list[str] = []
    lacked = gaps if missing_is_failure() else absent
    for kind in row.kinds + (row.points if brokers else ()):
        where = {broker for each, broker in felt if each == kind}
        lacking = [broker for broker in BROKERS if broker in brokers and broker not in where]
        if where and not lacking:
            shown.append(kind)
        elif kind in missing:
            lacked.append(f"{kind}: {missing[kind]}")
        else:
            gaps.append(f"{kind} was not felt" + f" on {', '.join(lacking)}" * bool(where))
    for test in tests:
        of_it = [each for each in ran if _belongs(each.test, test)]
        failed = [each for each in of_it if each.fate is Fate.FAILED]
        passed = [each for each in of_it if each.fate is Fate.PASSED]
        skipped = [each for each in of_it if each.fate is Fate.SKIPPED]
        gaps += [f"{each.test} failed" for each in failed]
        again += [each.test for each in passed if each.second_try]
        lacked += [f"{each.test}: {each.why}" for each in skipped]
        if passed and not failed:
            shown.append(test)
        elif not of_it:
            gaps.append(f"{test} was not run")
    return Proof(row, tuple(shown), tuple(gaps), tuple(absent), tuple(again))


def _belongs(ran: str, named: str) -> bool:
    return ran == named or ran.startswith((f"{named}[", f"{named}::"))


def exists(test: str) -> bool:
    """Whether a test's file has a function of its name. One unknown id would keep pytest from running any."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.exists() and (not name or f"def {name.partition('[')[0]}(" in file.read_text())


def run_tests(tests: Sequence[str]) -> list[Ran]:
    """Run tests in a pytest of their own; one that is not there is in no answer."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "results.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--no-header",
            "--durations=8",
            f"--numprocesses={WORKERS}",
        ]
        command += ["--dist=loadscope", "-o", "junit_family=xunit1", f"--junitxml={record}"]
        subprocess.run([*command, *filter(exists, tests)], cwd=ROOT, timeout=TESTS_SECONDS, check=False)
        return read_results(record.read_text()) if record.exists() else []


def read_results(text: str) -> list[Ran]:
    """What pytest wrote in its record, in JUnit's format."""
    results: list[Ran] = []
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314 - written by our own pytest
        test = f"{case.get('file')}::{case.get('name')}"
        skipped = case.find("skipped")
        expected_to_fail = skipped is not None and skipped.get("type") == "pytest.xfail"
        if expected_to_fail or case.find("failure") is not None or case.find("error") is not None:
            results.append(Ran(test, Fate.FAILED))
        elif skipped is not None:
            results.append(Ran(test, Fate.SKIPPED, skipped.get("message", "")))
        else:
            results.append(Ran(test, Fate.PASSED))
    return results


def unreadable(record: Path) -> str:
    """Why a file is no record in JUnit's format; empty when it is one."""
    try:
        root = ET.fromstring(record.read_text(encoding="utf-8"))  # noqa: S314 - written by our own pytest
    except (OSError, ValueError, ET.ParseError) as error:
        return str(error)
    return "" if root.tag in ("testsuites", "testsuite") else f"it begins with <{root.tag}>"


def latest(records: Sequence[Path]) -> list[Ran]:
    """What became of each test the last time it ran: a later record overrules an earlier one, and leaves its trace."""
    by_test: dict[str, Ran] = {}
    failed: set[str] = set()
    for record in records:
        for ran in read_results(record.read_text()):
            if ran.fate is Fate.SKIPPED and ran.test in failed:
                continue  # that it could not be had the second time does not undo what it showed the first
            by_test[ran.test] = replace(ran, second_try=ran.fate is Fate.PASSED and ran.test in failed)
            if ran.fate is Fate.FAILED:
                failed.add(ran.test)
    return list(by_test.values())


def table(proofs: Sequence[Proof]) -> str:
    """The matrix with what was shown of each row."""
    lines = ["fault matrix"]
    for proof in proofs:
        kinds = [shown for shown in proof.shown if "/" not in shown]
        tests = len(proof.shown) - len(kinds)
        how = ", ".join([*kinds, *([f"{tests} test{'s' * (tests > 1)}"] if tests else [])])
        lines.append(f"  {proof.row.number:>2}  {proof.row.fault:<74} {proof.standing:<9} {how}")
        lines += [f"      at the second try: {test}" for test in proof.second_try]
        lines += [f"      not here: {reason}" for reason in proof.absent]
        lines += [f"      GAP: {gap}" for gap in proof.gaps]
    return "\n".join(lines)
