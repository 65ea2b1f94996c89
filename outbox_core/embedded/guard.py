"""A program that runs another for as long as somebody holds the other end of its standard input.

However the holder ends, SIGKILL included, the kernel closes that pipe; the guard then ends the program, by force if it
must, and removes its folder. Each byte that comes through the pipe is a signal to pass on: only a parent can signal a
process without the risk that its id belongs to another by now.

Started as ``python -I -S guard.py JSON`` and made of the standard library alone, so that it is there at once. It writes
a line for each command it starts: the process id, or ``!`` and why it could not be started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1
_NOT_STARTED = 127


def main(text: str) -> int:
    """Run the commands one after the other; the exit code is that of the last one that ran."""
    spec: dict[str, Any] = json.loads(text)
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    # Handlers, unlike SIG_IGN, are not inherited by what is started here.
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _wake)
    log = os.open(spec["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    code, released = 0, False
    for command in spec["commands"]:
        code, released = _run(command, spec, log, awake)
        if code or released:
            break
    # What a program that has ended by itself leaves is evidence, for the holder to read and to remove.
    if released and spec["remove"]:
        from shutil import rmtree

        rmtree(spec["remove"], ignore_errors=True)
    return code


class Child(subprocess.Popen[bytes]):
    """The program under guard."""

    def end(self, number: int, patience: float) -> None:
        """Ask it to end, frozen or not, and kill it when it has not after ``patience`` seconds."""
        self.send_signal(number)
        self.send_signal(signal.SIGCONT)
        try:
            self.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()


def _run(command: list[str], spec: dict[str, Any], log: int, awake: int) -> tuple[int, bool]:
    """The exit code, and whether the holder has let go."""
    try:
        child = Child(
            command,
            cwd=spec["folder"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=spec["user"],
            group=spec["group"],
            extra_groups=None if spec["user"] is None else [],
            preexec_fn=_parting_signal(spec["orphaned"]),
        )
    except (OSError, subprocess.SubprocessError) as error:
        _say(f"!{command[0]}: {error}")
        return _NOT_STARTED, False
    _say(str(child.pid))
    released = False
    while child.poll() is None:
        ready, _, _ = select.select([0, awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
        if 0 in ready:
            numbers = os.read(0, 64)
            for number in numbers:
                child.send_signal(number)
            if not numbers:
                released = True
                child.end(spec["stop"], spec["patience"])
    return child.returncode if child.returncode >= 0 else 128 - child.returncode, released


def _parting_signal(number: int) -> Callable[[], object] | None:
    """Where the kernel can do it: what a program calls so as to be signalled should the guard itself be killed.

    Loaded before the account changes, to which Python's own folder may be closed.
    """
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return lambda: prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _wake(number: int, frame: object) -> None:
    """The byte that the signal writes to the wake-up pipe is all that is needed."""
    del number, frame


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{text}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
