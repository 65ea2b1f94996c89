"""Output that nobody reads to its end, and output that cannot be written."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.integration.cli.command import OUTBOX, PATIENCE, environment, invoke
from tests.integration.cli.sql import TABLE, add, states
from tests.services.postgres import Database

LISTING = ("pending", "-t", TABLE, "--limit", "5000")


@pytest.fixture
def dsn(database: Database) -> str:
    """A table with more messages than fit into a pipe."""
    assert invoke("schema", "create", "-t", TABLE, database=database.dsn).code == 0
    add(database.dsn, "pending", 5000)
    return database.dsn


def shell(command: str, database: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        env=environment(database, {"OUTBOX": str(OUTBOX)}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_a_reader_that_leaves_early_ends_it_without_a_word(dsn: str) -> None:
    done = shell(f'"$OUTBOX" {" ".join(LISTING)} | head -n 3; echo "${{PIPESTATUS[0]}}"', dsn)
    *rows, code = done.stdout.splitlines()
    assert (len(rows), code, done.stderr) == (3, "141", "")


@pytest.mark.parametrize(
    "args",
    [
        (*LISTING, "--json"),
        ("status", "-t", TABLE),
        ("schema", "print", "-t", TABLE),
        ("--help",),
        ("dead", "list", "--help"),
        ("completion", "bash"),
    ],
    ids=" ".join,
)
def test_a_reader_that_left_before_the_first_line(dsn: str, args: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [OUTBOX, *args],
        env=environment(dsn),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_change_that_cannot_be_shown_is_not_made(dsn: str) -> None:
    add(dsn, "dead", 2)
    args = f"dead discard -t {TABLE} --all --yes --reason 'of no use'"
    assert shell(f'"$OUTBOX" {args} > /dev/full', dsn).returncode == 14
    assert states(dsn) == {"pending": 5000, "dead": 2}


@pytest.mark.parametrize(
    "args", [(*LISTING,), (*LISTING, "--json"), ("schema", "print", "-t", TABLE), ("--help",)]
)
def test_a_disk_that_is_full(dsn: str, args: tuple[str, ...]) -> None:
    done = shell(f'"$OUTBOX" {" ".join(args)} > /dev/full', dsn)
    assert (done.returncode, done.stderr) == (
        14,
        "error: standard output could not be written: No space left on device\n",
    )


def test_errors_that_cannot_be_told_still_have_their_code(dsn: str) -> None:
    assert shell('"$OUTBOX" statsu 2> /dev/full', dsn).returncode == 2
    assert shell('"$OUTBOX" statsu 2>&1 >/dev/null | true; exit "${PIPESTATUS[0]}"', dsn).returncode == 2


def test_a_process_without_standard_output(dsn: str) -> None:
    done = shell(f'"$OUTBOX" {" ".join(LISTING)} >&-', dsn)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert shell('"$OUTBOX" statsu 2>&-', dsn).returncode == 2
