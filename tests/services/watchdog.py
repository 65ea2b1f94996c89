"""Ends what a dead run left behind, by recorded process identity, never by name.

Two ways lead here. Each run starts `python -m tests.services.watchdog FOLDER`, which waits for the end of its
standard input: the runner alone holds the other end, so the kernel closes it however the runner dies, SIGKILL
included. And each new run sweeps the folders of dead ones, should a watchdog have been killed too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.services import process
from tests.services.process import Process

RECORD_SUFFIX = ".process"


def run_folder_name(runner: Process, suffix: str) -> str:
    """The name of a run's folder, which says whose it is from the instant it exists."""
    return f"run-{runner.pid}-{runner.started}-{suffix}"


def runner_of(folder: Path) -> Process | None:
    """The runner a folder belongs to; None for a folder that is no run's."""
    parts = folder.name.split("-")
    if len(parts) != 4 or parts[0] != "run" or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return Process(pid=int(parts[1]), started=int(parts[2]))


def recorded(folder: Path) -> Iterator[Process]:
    """The processes a run has recorded, dead or alive."""
    for record in sorted(folder.glob(f"*{RECORD_SUFFIX}")):
        # A record is empty while its process is being born and gone once it was reaped.
        with contextlib.suppress(FileNotFoundError, ValueError):
            yield process.parse(record.read_text())


def clean_up(folder: Path, *, timeout_s: float = 5.0) -> None:
    """Kill every recorded process of a run with its descendants, then remove the run's folder. Safe to repeat."""
    killed = [member for root in recorded(folder) for member in root.kill()]
    process.wait_until_gone(killed, timeout_s=timeout_s)
    shutil.rmtree(folder, ignore_errors=True)


def sweep(base: Path) -> None:
    """Clean up after every run in `base` whose runner is dead."""
    for folder in base.iterdir():
        runner = runner_of(folder)
        if runner is not None and not runner.alive:
            clean_up(folder)


def main(folder: Path) -> None:
    """Wait for the runner's end, however it comes, and clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 1):
        pass
    clean_up(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
