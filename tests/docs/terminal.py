"""A shell that a reader of a page types into."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 60.0
_KEPT = ("HOME", "LANG", "LC_ALL", "SSL_CERT_FILE")


class Terminal:
    """Bash in a folder, with the commands of the environment that the tests run in and nothing of their settings."""

    def __init__(self, folder: Path, *, temporary: Path, output: Path) -> None:
        self._output = output
        self._at = 0
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with output.open("wb") as file:
            self._shell = subprocess.Popen(
                ["bash", "--norc", "--noprofile"],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
                # A terminal's lines come at once.
                env=kept | {"PATH": path, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    @property
    def screen(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def type(self, line: str) -> None:
        """A command; it runs when those before it have ended."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(line.encode() + b"\n")
        self._shell.stdin.flush()

    def expect(self, line: str) -> None:
        """Wait until the line is on the screen, after those that were expected before; ``…`` stands for anything."""
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        deadline = time.monotonic() + PATIENCE
        while (found := pattern.search(self.screen, self._at)) is None:
            assert time.monotonic() < deadline, f"{line!r} is not on the screen:\n{self.screen}"
            time.sleep(0.05)
        self._at = found.end()

    def interrupt(self) -> None:
        """Ctrl-C, and the end of the shell and of all that it has started."""
        self._close_input()
        self._signal(signal.SIGINT)
        assert self._ended(PATIENCE), f"it goes on after Ctrl-C:\n{self.screen}"

    def close(self) -> None:
        """Whatever still runs is ended, and killed if that takes too long."""
        self._close_input()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._ended(0):
                self._signal(number)
                self._ended(PATIENCE / 3)

    def _close_input(self) -> None:
        if self._shell.stdin is not None:
            self._shell.stdin.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, number)

    def _ended(self, within: float) -> bool:
        """Whether nobody is left of the shell's process group."""
        deadline = time.monotonic() + within
        while True:
            self._shell.poll()
            try:
                os.killpg(self._shell.pid, 0)
            except ProcessLookupError:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
