"""One operating-system process and its descendants, named by an identity that a recycled process id cannot take.

Needs nothing but the standard library and Linux's /proc, so that the watchdog starts quickly.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_DEAD_STATES = "ZX"
_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process id with the kernel's start tick: the pair is unique until the machine reboots."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """True while this very process runs; a zombie counts as dead."""
        entry = _entry(self.pid)
        return entry is not None and entry.process == self and entry.state not in _DEAD_STATES

    @property
    def runs(self) -> bool:
        """True while one of its threads is neither stopped nor dead: a signal takes a moment to reach them all."""
        try:
            threads = [entry.read_text() for entry in (_PROC / str(self.pid) / "task").glob("*/stat")]
        except (FileNotFoundError, ProcessLookupError):
            return self.alive
        return self.alive and any(_parse(thread).state not in f"{_DEAD_STATES}Tt" for thread in threads)

    def send(self, number: signal.Signals) -> None:
        """Signal this process if it still exists; a process that is gone is not an error."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def family(self) -> list[Process]:
        """This process and its living descendants, parents first, also those whose parent died before them.

        Descendants are followed by parent id, because PostgreSQL's backends each open a session, and by session,
        because a start script that dies leaves its server to the init process. The kernel gives nobody else a process
        id that is still the id of a session.
        """
        children: dict[int, list[Process]] = {}
        holder = _entry(self.pid)
        if holder is not None and holder.process != self:
            return []
        members = [self] if self.alive else []
        for folder in _PROC.iterdir():
            entry = _entry(int(folder.name)) if folder.name.isdigit() else None
            if entry is not None and entry.state not in _DEAD_STATES:
                children.setdefault(entry.parent, []).append(entry.process)
                if entry.session == self.pid and entry.process.started >= self.started:
                    members.append(entry.process)
        for member in members:
            members.extend(children.get(member.pid, ()))
        return list(dict.fromkeys(members))

    def freeze(self) -> list[Process]:
        """SIGSTOP the family and return it. Repeats until a look finds no newcomer, so a racing fork is stopped too."""
        frozen: list[Process] = []
        while newcomers := [member for member in self.family() if member not in frozen]:
            for member in newcomers:
                member.send(signal.SIGSTOP)
            frozen += newcomers
        deadline = time.monotonic() + _STOP_SECONDS
        while any(member.runs for member in frozen) and time.monotonic() < deadline:
            time.sleep(0.001)
        return frozen

    def thaw(self) -> None:
        """SIGCONT the family."""
        for member in self.family():
            member.send(signal.SIGCONT)

    def kill(self) -> list[Process]:
        """SIGKILL the family, frozen or not, and return it. Does not wait: see `wait_until_gone`."""
        members = self.freeze()
        for member in members:
            member.send(signal.SIGKILL)
        return members


@dataclass(frozen=True, slots=True)
class _Entry:
    process: Process
    state: str
    parent: int
    session: int


def current() -> Process:
    """The process that calls this."""
    return parse((_PROC / "self" / "stat").read_text())


def parse(stat: str) -> Process:
    """The process a line of /proc/PID/stat speaks of. Raises ValueError for anything else."""
    return _parse(stat).process


def wait_until_gone(processes: list[Process], *, timeout_s: float) -> list[Process]:
    """Wait until none of the processes is alive, and return those that still are after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while (left := [process for process in processes if process.alive]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def _entry(pid: int) -> _Entry | None:
    try:
        return _parse((_PROC / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def _parse(stat: str) -> _Entry:
    # The second field is the command in parentheses and may itself hold spaces and parentheses.
    head, separator, tail = stat.rpartition(") ")
    fields = tail.split()
    if not separator or len(fields) < 20:
        raise ValueError(f"not a line of /proc/PID/stat: {stat[:80]!r}")
    process = Process(pid=int(head.partition(" ")[0]), started=int(fields[19]))
    return _Entry(process=process, state=fields[0], parent=int(fields[1]), session=int(fields[3]))
