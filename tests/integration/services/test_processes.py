"""Processes are signalled by identity, with all their descendants and nobody else."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import process
from tests.services.process import Process


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A shell whose child runs in a session of its own, as PostgreSQL's backends do."""
    script = "setsid sleep 300 & echo started; wait"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"started\n"
        root = _process(shell.pid)
        yield shell
        root.kill()


def _process(pid: int) -> Process:
    return process.parse(Path(f"/proc/{pid}/stat").read_text())


def test_killing_reaches_descendants_in_other_sessions(parent: subprocess.Popen[bytes]) -> None:
    family = _process(parent.pid).family()
    assert len(family) == 2
    _process(parent.pid).kill()
    parent.wait(5)
    assert process.wait_until_gone(family, timeout_s=5.0) == []


def test_a_frozen_family_is_killed_all_the_same(parent: subprocess.Popen[bytes]) -> None:
    family = _process(parent.pid).freeze()
    assert len(family) == 2
    assert all(member.alive for member in family)
    _process(parent.pid).kill()
    parent.wait(5)
    assert process.wait_until_gone(family, timeout_s=5.0) == []


def test_a_recycled_process_id_is_left_alone(parent: subprocess.Popen[bytes]) -> None:
    now = _process(parent.pid)
    earlier = Process(pid=now.pid, started=now.started - 1)
    assert not earlier.alive
    assert earlier.family() == []
    earlier.kill()
    earlier.send(signal.SIGKILL)
    assert now.alive


def test_a_command_with_parentheses_is_parsed() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    assert process.parse(f"7 (a) b) S {fields}") == Process(pid=7, started=22)
    with pytest.raises(ValueError, match="not a line"):
        process.parse("")


def test_a_child_whose_parent_died_first_is_still_of_the_family() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert shell.stdout is not None
    orphan = _process(int(shell.stdout.readline()))
    root = _process(shell.pid)
    shell.kill()
    shell.wait(5)
    shell.stdout.close()
    assert orphan.alive
    assert root.family() == [orphan]
    root.kill()
    assert process.wait_until_gone([orphan], timeout_s=5.0) == []
