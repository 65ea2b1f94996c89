"""Watching a command from outside: what it starts, and what is left of that when it has ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.integration.cli.command import OUTBOX, environment

PATIENCE = 60.0


class Watched:
    """A process with its descendants, and the folder that is its TMPDIR."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.family: set[psutil.Process] = set()

    def look(self) -> set[str]:
        """Note the processes that it has now; their names."""
        try:
            self.family |= set(psutil.Process(self.process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return set()
        names: set[str] = set()
        for member in self.family:
            try:
                names.add(member.name())
            except psutil.NoSuchProcess:
                continue
        return names

    def read_until(self, text: str) -> str:
        """The first line of its standard output, from here on, that has the text."""
        assert self.process.stdout is not None
        seen: list[str] = []
        for line in self.process.stdout:
            seen.append(line)
            self.look()
            if text in line:
                return line
        raise AssertionError(
            f"{text!r} is not in the output:\n{''.join(seen)}\n{self.process.communicate()[1]}"
        )

    def end(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Signal it if a signal is given, and wait for its end."""
        self.look()
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err

    def assert_nothing_left(self) -> None:
        """Every process it ever had is gone, and so are its folders."""
        assert self.family
        _, alive = psutil.wait_procs(self.family, timeout=15)
        assert alive == []
        until(lambda: not entries(self.folder), f"{self.folder} is not empty")


def entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def until(reached: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.05)


@contextmanager
def watched(folder: Path, *args: str, program: Sequence[str | Path] = (OUTBOX,)) -> Iterator[Watched]:
    process = subprocess.Popen(
        [*program, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(None, {"TMPDIR": str(folder), "PYTHONWARNINGS": "error"}),
    )
    try:
        yield Watched(process, folder)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def python(source: str) -> Sequence[str]:
    return (sys.executable, "-c", source)
