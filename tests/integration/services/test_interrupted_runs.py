"""However a run ends, its servers end with it, and runs side by side do not meet."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.services.kinds import KINDS
from tests.services import process, watchdog
from tests.services.process import Process
from tests.services.session import Services
from tests.services.sources import Foreign, Source

_REPOSITORY = Path(__file__).resolve().parents[3]
_EVERY_SERVER = ",".join(KINDS)


@dataclass(frozen=True, slots=True)
class HeldRun:
    runner: subprocess.Popen[bytes]
    folder: Path
    watchdog: int
    addresses: dict[str, str]
    processes: list[Process]

    def end(self, number: signal.Signals) -> None:
        """Signal the runner alone, and see that nothing of the run is left 5 s after its end."""
        self.runner.send_signal(number)
        self.runner.wait(90)
        self.expect_nothing_left()

    def expect_nothing_left(self) -> None:
        assert process.wait_until_gone(self.processes, timeout_s=5.0) == []
        deadline = time.monotonic() + 5.0
        while self.folder.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not self.folder.exists()


@dataclass(frozen=True, slots=True)
class StartingRun:
    runner: subprocess.Popen[bytes]
    report: Path
    output: Path

    def held(self, *, timeout_s: float = 120.0) -> HeldRun:
        """Wait until its servers are up."""
        deadline = time.monotonic() + timeout_s
        while not self.report.exists():
            ended = self.runner.poll() is not None
            assert not ended, self.output.read_text()
            assert time.monotonic() < deadline, f"no servers after {timeout_s} s:\n{self.output.read_text()}"
            time.sleep(0.05)
        report = json.loads(self.report.read_text())
        processes = [Process(*pair) for pair in report["processes"]]
        servers = {Process(*pair) for pair in report["recorded"]}
        assert servers <= set(processes)
        assert all(server.alive for server in servers)  # their children come and go
        return HeldRun(
            self.runner, Path(report["folder"]), report["watchdog"], report["addresses"], processes
        )


@contextlib.contextmanager
def starting_run(folder: Path, servers: str, **environment: str) -> Iterator[StartingRun]:
    folder.mkdir(exist_ok=True)
    output = folder / "output"
    with output.open("wb") as file:
        runner = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-o",
                "timeout=175",
                "tests/integration/services/held_run.py",
            ],
            cwd=_REPOSITORY,
            env={
                **os.environ,
                "HELD_REPORT": str(folder / "report.json"),
                "HELD_SERVERS": servers,
                **environment,
            },
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield StartingRun(runner, folder / "report.json", output)
    finally:
        runner.kill()
        runner.wait(10)


@pytest.fixture
def every_server_is_here(services: Services) -> None:
    from tests.conftest import skipped_or_failed_when_missing

    for kind in KINDS.values():
        with skipped_or_failed_when_missing():
            services.locate(kind, private=True)


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("every_server_is_here")
def test_runs_side_by_side_end_each_on_its_own(services: Services, tmp_path: Path) -> None:
    with (
        starting_run(tmp_path / "one", _EVERY_SERVER) as first,
        starting_run(tmp_path / "two", _EVERY_SERVER) as second,
    ):
        one, two = first.held(), second.held()
        assert not set(one.addresses.values()) & set(two.addresses.values())

        one.end(signal.SIGKILL)

        assert all(member.alive for member in two.processes)
        for name, address in two.addresses.items():
            survivor = KINDS[name](services.run, Foreign(Source.ENVIRONMENT, address))
            survivor.round_trip(timeout_s=15.0)
        two.end(signal.SIGINT)


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("every_server_is_here")
def test_a_terminated_run_leaves_no_server(tmp_path: Path) -> None:
    with starting_run(tmp_path / "run", _EVERY_SERVER) as run:
        run.held().end(signal.SIGTERM)


@pytest.mark.usefixtures("every_server_is_here")
def test_the_next_run_cleans_up_when_the_watchdog_died_too(tmp_path: Path) -> None:
    with starting_run(tmp_path / "run", "NATS", TMPDIR=str(tmp_path)) as run:
        held = run.held()
        os.kill(held.watchdog, signal.SIGKILL)
        watchdog.sweep(held.folder.parent)
        assert all(member.alive for member in held.processes), "a living run was swept away"

        held.runner.kill()
        held.runner.wait(10)
        assert all(member.alive for member in held.processes), (
            "somebody else ended them: this test shows nothing"
        )

        watchdog.sweep(held.folder.parent)
        held.expect_nothing_left()


@pytest.mark.usefixtures("every_server_is_here")
def test_a_frozen_server_does_not_outlive_its_run(tmp_path: Path) -> None:
    with starting_run(tmp_path / "run", "PostgreSQL") as run:
        held = run.held()
        for member in held.processes:
            member.send(signal.SIGSTOP)
        held.end(signal.SIGKILL)
