"""One test run on this machine: its folder, its ports and its processes."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.services import process, watchdog
from tests.services.account import Account
from tests.services.process import Process

_REPOSITORY = Path(__file__).resolve().parents[2]
# Below the kernel's default range for outgoing connections, so that none of those takes the port of a server
# while it is down.
_PORTS = range(20_000, 32_000)
# The record is the child's own first act: there is no instant at which a server runs unrecorded.
_RECORD_THEN_BECOME = 'read -r stat </proc/$$/stat; echo "$stat"; exec "$@" >&2'


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run: `arguments[0]` is the program, `environment` is the whole environment, output goes to `log`.

    `port` is the one it will listen on.
    """

    name: str
    port: int
    arguments: Sequence[str | Path]
    folder: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    account: Account | None = None


class Child:
    """A process this run started, in a session of its own so that the terminal's Ctrl-C does not reach it."""

    def __init__(self, popen: subprocess.Popen[bytes], record: Path) -> None:
        self._popen = popen
        self._record = record
        self.process = Process(pid=popen.pid, started=_started(popen.pid))

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._popen.poll()

    def terminate(self, number: signal.Signals, *, timeout_s: float) -> None:
        """Ask to end with a signal, which also thaws it; kill it after `timeout_s` seconds. Returns once reaped."""
        family = self.process.family()
        self.process.send(number)
        self.process.thaw()
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            # A helper that outlives a well-behaved parent would be out of reach once that parent is reaped.
            for straggler in process.wait_until_gone(family, timeout_s=2.0):
                straggler.kill()
            self._forget()

    def kill(self, *, timeout_s: float = 10.0) -> None:
        """SIGKILL it with its descendants, frozen or not. Returns once all are gone and it is reaped."""
        members = self.process.kill()
        self._popen.wait(timeout_s)
        if left := process.wait_until_gone(members, timeout_s=timeout_s):
            raise TimeoutError(
                f"processes {[member.pid for member in left]} survived SIGKILL for {timeout_s} s"
            )
        self._forget()

    def _forget(self) -> None:
        self._record.unlink(missing_ok=True)


class Run:
    """Owns a folder below the system's temporary one, free ports and child processes, with a watchdog over them.

    Whatever happens to this process, its children are dead and its folder is gone within seconds. `close()` does
    the same in order. Runs side by side share nothing but the list of taken ports.
    """

    def __init__(self) -> None:
        base = base_folder()
        watchdog.sweep(base)
        self._ports_folder = base / "ports"
        self._ports_folder.mkdir(exist_ok=True)
        self.folder = base / watchdog.run_folder_name(process.current(), secrets.token_hex(3))
        _make(self.folder)
        self._taken: list[IO[str]] = []
        self._numbers = itertools.count(1)
        self._children: list[Child] = []
        self._watchdog = subprocess.Popen(
            [sys.executable, "-S", "-m", "tests.services.watchdog", str(self.folder)],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def watchdog_pid(self) -> int:
        return self._watchdog.pid

    def folder_for(self, name: str, account: Account | None = None) -> Path:
        """A new empty folder, owned by `account` when one is given."""
        folder = self.folder / f"{name}-{next(self._numbers)}"
        _make(folder)
        if account is not None:
            os.chown(folder, account.user, account.group)
        return folder

    def free_port(self) -> int:
        """A TCP port that nobody listens on and that no other run will pick while this one lives."""
        # The system's randomness: seeded runs side by side would try the same ports in the same order.
        for port in random.SystemRandom().sample(_PORTS, 500):
            lock = (self._ports_folder / str(port)).open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            except OSError:
                lock.close()
                continue
            self._taken.append(lock)
            return port
        raise RuntimeError(f"no free TCP port among 500 tried in {_PORTS.start}-{_PORTS.stop}")

    def launch(self, command: Command) -> Child:
        """Start a process that cannot outlive this run."""
        record = self.folder / f"{command.name}-{next(self._numbers)}{watchdog.RECORD_SUFFIX}"
        account = command.account
        with record.open("wb") as record_file, command.log.open("ab") as log:
            popen = subprocess.Popen(
                ["/bin/sh", "-c", _RECORD_THEN_BECOME, "sh", *map(str, command.arguments)],
                cwd=command.folder,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                stdout=record_file,
                stderr=log,
                start_new_session=True,
                user=None if account is None else account.user,
                group=None if account is None else account.group,
                extra_groups=None if account is None else [],
            )
        child = Child(popen, record)
        self._children.append(child)
        return child

    def close(self) -> None:
        """Kill what still runs and remove the folder. Data is thrown away, so nothing is asked to end politely."""
        for child in self._children:
            if child.exit_code is None:
                child.kill()
        for lock in self._taken:
            lock.close()
        # At the end of its input the watchdog removes the folder, as it would after a crash.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._watchdog.communicate(timeout=10.0)
        self._watchdog.kill()
        self._watchdog.wait()


def base_folder() -> Path:
    """The folder of all runs of this user on this machine."""
    base = Path(tempfile.gettempdir()) / f"outbox-tests-{os.getuid()}"
    if not base.exists():
        _make(base)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise PermissionError(
            f"{base} belongs to somebody else; remove it or set TMPDIR to a folder of your own"
        )
    return base


def _make(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    # Whatever the umask says: servers under the unprivileged account pass through here.
    folder.chmod(0o755)


def _started(pid: int) -> int:
    return process.parse(Path(f"/proc/{pid}/stat").read_text()).started
