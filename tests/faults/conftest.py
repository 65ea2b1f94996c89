"""A server whose clock can be moved, and one whose disk can be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import skip_or_fail, skipped_or_failed_when_missing
from tests.faults.servers import ClockedPostgres
from tests.services.account import unprivileged
from tests.services.session import Services
from tests.services.sources import Missing


@pytest.fixture
def clocked_postgres(services: Services) -> Iterator[ClockedPostgres]:
    with skipped_or_failed_when_missing(), services.private(ClockedPostgres) as server:
        if not server.clock.movable:
            raise Missing("clock that can be moved", "it needs a C compiler, run `apt-get install gcc`")
        yield server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB that the server may write to."""
    if os.getuid() != 0:
        skip_or_fail(Missing("small file system", "mounting one needs root"))
    folder = Path("/tmp") / f"faults-{tmp_path.parent.name}-{os.getpid()}"  # noqa: S108 - a path the server may enter
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder],
            check=False,
            capture_output=True,
            text=True,
        )
        if mounted.returncode:
            skip_or_fail(Missing("small file system", "mount a tmpfs", [mounted.stderr.strip()]))
        try:
            if account := unprivileged():
                os.chown(folder, account.user, account.group)
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
    finally:
        folder.rmdir()
