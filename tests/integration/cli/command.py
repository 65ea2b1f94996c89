"""The real command, in a pipe and in a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from outbox_core.cli.root import root

OUTBOX = Path(sys.executable).with_name("outbox")
PATIENCE = 40.0
_AT_THE_TERMINAL = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
"""Run a program in a session of its own with this terminal in control, so that a typed Ctrl-C is a signal."""
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """Standard output as cells."""
        return [line.split("\t") for line in self.out.splitlines()]


def environment(database: str | None, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Nothing of the caller's OUTBOX_*, and the database of the test."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OUTBOX_", "PROMETHEUS_"))
    }
    kept.pop("NO_COLOR", None)
    return kept | ({"OUTBOX_DATABASE_URL": database} if database else {}) | dict(more or {})


def outbox(
    *args: str, database: str | None = None, env: Mapping[str, str] | None = None, stdin: str = ""
) -> Result:
    """Run it in pipes until it ends."""
    done = subprocess.run(
        [OUTBOX, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(database, env),
    )
    return Result(done.returncode, done.stdout, done.stderr)


def invoke(
    *args: str, database: str | None = None, env: Mapping[str, str] | None = None, stdin: str = ""
) -> Result:
    """The same in this process, which is faster: for what does not depend on the process itself."""
    wanted = environment(database, env)
    runner = CliRunner(env={name: wanted.get(name) for name in {*os.environ, *wanted}})
    done = runner.invoke(root, args, input=stdin, prog_name="outbox")
    return Result(done.exit_code, done.stdout, done.stderr)


class Background:
    """It runs until it is told to stop; what it logs is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[str] = []

    def wait_for(self, text: str) -> str:
        """The first line of the log, from here on, that has the text."""
        assert self.process.stderr is not None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            line = self.process.stderr.readline()
            if not line:
                break
            self.seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} is not in the log:\n{''.join(self.seen)}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=PATIENCE)
        self.seen.append(rest)
        return self.process.returncode


@contextmanager
def background(*args: str, database: str, env: Mapping[str, str] | None = None) -> Iterator[Background]:
    process = subprocess.Popen(
        [OUTBOX, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(database, env),
    )
    try:
        yield Background(process)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


class Terminal:
    """It runs in a pseudo-terminal; what is on the screen is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.raw = ""

    @property
    def screen(self) -> str:
        """All that was written, without styles."""
        return _STYLE.sub("", self.raw).replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.screen:
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{text!r} is not on the screen:\n{self.screen}")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(timeout=PATIENCE)

    def _read(self, timeout: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(timeout, 0))
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:
            # Linux: the other side is closed.
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)


@contextmanager
def terminal(*args: str, database: str | None, env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _AT_THE_TERMINAL, OUTBOX, *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(database, {"TERM": "xterm-256color", "COLUMNS": "200", **(env or {})}),
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait(timeout=PATIENCE)
        os.close(master)
