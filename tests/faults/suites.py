"""What belongs to the long form besides the faults: simulations, the store's model, cancellations, starts and stops.

Each is run in a process of its own, and its count is taken from what it did, not from what it was asked to do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.processes import ROOT
from tests.integration.relay.crashes import CRASHES

SEEDS, EXAMPLES, STEPS, CYCLES = 2_000, 200, 50, 500
LIMIT_SECONDS = 2_400.0
_RELAY = "tests/integration/relay"
_RAN = re.compile(r"^(\d+) seeds in [0-9.]+ s, 0 failed", re.MULTILINE)
_TAIL_LINES = 30


@dataclass(frozen=True, slots=True)
class Suite:
    """``command`` follows the interpreter; ``wanted`` has what must be counted at least, by name."""

    name: str
    command: tuple[str, ...]
    wanted: Mapping[str, int]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a suite. Nothing is counted of one that failed."""

    suite: Suite
    passed: bool
    counts: Mapping[str, int]
    seconds: float
    tail: str = ""


def suites(seed: int) -> tuple[tuple[Suite, ...], ...]:
    """Everything, with seeds and examples that differ from run to run; those of a group are run at the same time."""
    half = SEEDS // 2
    halves = [1_000_000 + seed * SEEDS, 1_000_000 + seed * SEEDS + half]
    alone = (
        Suite(
            "model of the store",
            _pytest(f"{_RELAY}/test_state_machine.py", f"--hypothesis-seed={seed}"),
            {"machine_examples": EXAMPLES, "machine_steps": EXAMPLES * STEPS},
            # Many examples end after fewer steps than they may have: there are more of them, until all have been made.
            {"OUTBOX_TEST_MACHINE_EXAMPLES": str(3 * EXAMPLES), "OUTBOX_TEST_MACHINE_STEPS": str(STEPS)},
        ),
        Suite(
            "cut off at every await",
            _pytest(f"{_RELAY}/test_cancellation.py", "--numprocesses=2"),
            {"cancel_points": 1},
            {"OUTBOX_TEST_CANCEL_STRIDE": "1"},
        ),
        Suite(
            "killed at every moment",
            _pytest(f"{_RELAY}/test_crashes.py"),
            {"crashes": len(CRASHES)},
        ),
        Suite(
            "starts and stops",
            _pytest(f"{_RELAY}/test_lifecycle.py", "-k", "cycles"),
            {"start_stop_cycles": CYCLES},
            {"OUTBOX_TEST_CYCLES": str(CYCLES)},
        ),
    )
    simulations = tuple(
        Suite(
            f"simulation from {first}",
            ("-m", "tests.simulation", "--seeds", str(half), "--first", str(first)),
            {"simulation_seeds": half},
        )
        for first in halves
    )
    return (simulations, *((suite,) for suite in alone))


def _pytest(*arguments: str) -> tuple[str, ...]:
    return ("-m", "pytest", "-q", "--no-header", "--timeout=1200", "-o", "junit_family=xunit1", *arguments)


def run_all(chosen: Sequence[Suite], tell: Callable[[str], None]) -> list[Done]:
    """At the same time."""
    with ThreadPoolExecutor(max(len(chosen), 1)) as pool:
        done = list(pool.map(_run, chosen))
    for each in done:
        tell(line(each))
        if not each.passed:
            tell(each.tail)
    return done


def line(done: Done) -> str:
    counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in done.counts.items())
    fate = "passed" if done.passed else "FAILED"
    return f"  {done.suite.name:<24} {fate} in {done.seconds:.0f} s: {counted or 'nothing'}"


def _run(suite: Suite) -> Done:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="outbox-suites-") as folder:
        record, output = Path(folder) / "results.xml", Path(folder) / "output.txt"
        command = [sys.executable, *suite.command]
        if "pytest" in suite.command:
            command.append(f"--junitxml={record}")
        with output.open("wb") as stream:
            try:
                code = subprocess.run(
                    command,
                    cwd=ROOT,
                    env={**os.environ, **suite.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    timeout=LIMIT_SECONDS,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
        text = output.read_text(errors="replace")
        counts = counted(text, record.read_text() if record.exists() else "") if code == 0 else {}
    tail = "\n".join(text.splitlines()[-_TAIL_LINES:])
    return Done(suite, code == 0, counts, time.monotonic() - began, tail)


def counted(output: str, record: str) -> dict[str, int]:
    """What a suite did: from its last line, or from the properties that its tests left in pytest's record."""
    if found := _RAN.search(output):
        return {"simulation_seeds": int(found[1])}
    counts: Counter[str] = Counter()
    if record:
        for place in ET.fromstring(record).iter("property"):  # noqa: S314 - written by our own pytest
            counts[str(place.get("name"))] += int(place.get("value", "0"))
    return dict(counts)
