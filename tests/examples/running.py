"""Examples as their readers run them: from the repository's root, each in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BOUND = 90.0
"""For one run: each ends in seconds on a quiet machine."""
# Warnings are errors there too.
PYTHON = (sys.executable, "-W", "error")


def names() -> set[str]:
    return {folder.name for folder in EXAMPLES.iterdir() if folder.is_dir() and folder.name != "__pycache__"}


def environment(addresses: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the caller's settings, and these addresses."""
    ours = ("OUTBOX_", "PROMETHEUS_", "KAFKA_URL", "NATS_URL", "AMQP_URL", "PORT")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | dict(addresses)


def run(*arguments: str, addresses: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PYTHON, *arguments],
        cwd=ROOT,
        env=environment(addresses),
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


def succeed(*arguments: str, addresses: Mapping[str, str]) -> str:
    """Run it, with success and without a complaint; returns what it printed."""
    done = run(*arguments, addresses=addresses)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "Traceback" not in said, said
    assert done.stdout.strip(), "it says nothing of what it has seen"
    return done.stdout


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def until(condition: Callable[[], bool], *, timeout: float = 40.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


class Background:
    """A process that runs until it is told to stop."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            assert self._process.poll() is None, self.log()
            return condition()

        until(holds)

    def stop(self, *, within: float) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=within)

    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def background(command: list[str], addresses: Mapping[str, str], log: Path) -> Iterator[Background]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(addresses), stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield Background(process, log)
    finally:
        process.kill()
        process.wait(timeout=20)
