"""A session ends with one whole line of JSON, whatever went wrong, and says of what it was made."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults import __main__ as session
from tests.faults import page
from tests.faults.classify import Verdict
from tests.faults.plan import Plan
from tests.faults.trial import Result
from tests.revision import UNKNOWN, Revision, revision

LAST_LINE = frozenset(
    {
        "committed", "delivered", "dead", "duplicates", "lost", "phantom", "reordered", "stale_writes_accepted",
        "faults", "faults_by_kind", "seed", "commit", "dirty", "good", "finished",
    }
)  # fmt: skip
LEFT_OPEN: list[AsyncGenerator[None, None]] = []
CALM = ["--seed", "7", "--broker", "nats", "--mode", "ordered", "--no-matrix"]


async def calm_run(plan: Plan, *_: Any) -> Result:
    """A run that does nothing and is good."""
    return Result(plan, 0.0, ended=1.0, verdict=Verdict(committed=1, delivered=1))


async def ended(words: Sequence[str]) -> dict[str, Any]:
    return await session.main(session.parsed(words))


@pytest.mark.asyncio
async def test_the_last_line_has_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "run", calm_run)
    file = tmp_path / "run.json"
    found = await ended([*CALM, "--json", str(file)])
    assert found.keys() >= LAST_LINE
    assert (found["seed"], found["committed"], found["good"], found["finished"]) == (7, 1, True, True)
    saved = json.loads(file.read_text())
    assert {**saved, "seconds": 0} == {**found, "seconds": 0}


@pytest.mark.asyncio
async def test_what_breaks_the_session_off_is_in_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> list[Any]:
        raise TimeoutError("a suite took too long")

    monkeypatch.setattr(session, "run", calm_run)
    monkeypatch.setattr(session, "run_all", broken)
    found = await ended([*CALM, "--long"])
    assert found.keys() >= LAST_LINE
    assert (found["good"], found["finished"], found["committed"]) == (False, False, 2)
    assert found["problems"] == ["the session was broken off: TimeoutError: a suite took too long"]


@pytest.mark.asyncio
async def test_a_file_that_cannot_be_written_any_more_ends_no_session_and_takes_no_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs: list[Plan] = []

    async def without_its_file(plan: Plan, *given: Any) -> Result:
        runs.append(plan)
        (tmp_path / "run.json").mkdir(exist_ok=True)
        return await calm_run(plan, *given)

    monkeypatch.setattr(session, "run", without_its_file)
    both = ["--seed", "7", "--no-matrix", "--json", str(tmp_path / "run.json")]
    found = await ended([*both, "--report", str(tmp_path / "run.txt")])
    assert [plan.ordered for plan in runs] == [True, False]
    assert found.keys() >= LAST_LINE
    assert (found["good"], found["finished"]) == (False, True)
    (problem,) = found["problems"]
    assert "a file could not be written" in problem
    assert problem in (tmp_path / "run.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["--json", "--report", "--plot"])
@pytest.mark.parametrize("place", [".", "nowhere/file", "/proc/outbox"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_starts(
    option: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        session.parsed([*CALM, option, place])
    assert f"{option} {place} cannot be written: " in capsys.readouterr().err
    (tmp_path / "older").write_text("kept")
    for file in ("older", "new"):
        session.parsed([*CALM, option, file])
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("older", "kept")]


def test_a_long_form_and_a_soak_are_not_had_together(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        session.parsed(["--long", "--soak", "600"])
    assert "--long and --soak are two forms" in capsys.readouterr().err


def as_a_program(run: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """The module itself, with another run than its own, and all that it prints as one."""
    script = (
        "import runpy; from tests.faults import trial, test_session;"
        f"trial.run = test_session.{run}; runpy.run_module('tests.faults', run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=page.REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=50,
        check=False,
    )


def test_it_is_printed_after_everything_else() -> None:
    """By the module itself, with a run that only prints, to one stream with whatever else is said."""
    done = as_a_program("noisy_run", CALM)
    *before, last = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout
    assert json.loads(last).keys() >= LAST_LINE
    assert any("loop is closed" in line for line in before)


@pytest.mark.parametrize(
    ("program", "runs"), [("interrupted_run", 1), ("badly_interrupted_run", 1), ("interrupted_at_once", 0)]
)
def test_an_interruption_keeps_what_was_found_and_is_told_without_a_traceback(
    program: str, runs: int, tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    words = ["--seed", "7", "--broker", "nats", "--no-matrix", "--json", str(file)]
    done = as_a_program(program, words)
    assert (done.returncode, "Traceback" in done.stdout) == (130, False), done.stdout
    if runs:
        *_, said, last = done.stdout.splitlines()
        found = json.loads(last)
        assert (len(found["runs"]), found["good"], found["finished"]) == (runs, False, False)
        assert found["problems"] == ["the session was interrupted"]
        assert {**json.loads(file.read_text()), "seconds": 0} == {**found, "seconds": 0}
    else:
        said = done.stdout.splitlines()[-1]
        assert not file.exists()
    assert said == "interrupted"


async def interrupted_run(plan: Plan, *given: Any) -> Result:
    """Done in the first mode; in the second somebody presses Ctrl-C."""
    if plan.ordered:
        return await calm_run(plan, *given)
    return await interrupted_at_once()


async def badly_interrupted_run(plan: Plan, *given: Any) -> Result:
    """The same, and on its way out something else goes wrong, which a run keeps to itself."""
    try:
        return await interrupted_run(plan, *given)
    except asyncio.CancelledError:
        return Result(plan, 0.0, ended=1.0, problems=["the run was broken off: RuntimeError: no connection"])


async def interrupted_at_once(*_: Any) -> Result:
    signal.raise_signal(signal.SIGINT)
    await asyncio.Event().wait()
    raise AssertionError("nobody ends this")


async def noisy_run(plan: Plan, *given: Any) -> Result:
    """One that leaves something to be said when the event loop ends."""
    LEFT_OPEN.append(speaks_last())
    await anext(LEFT_OPEN[0])
    return await calm_run(plan, *given)


async def speaks_last() -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        print("before the loop is closed")


def repository(folder: Path) -> Path:
    """A repository with one commit."""
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    (folder / "file").write_text("1")
    for words in (["init", "--quiet"], ["add", "file"], [*identity, "commit", "--quiet", "-m", "m"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=30)
    return folder


def test_the_commit_is_told_and_whether_files_differ_from_it(tmp_path: Path) -> None:
    root = repository(tmp_path)
    clean = revision(root)
    assert (len(clean.commit), clean.dirty, str(clean)) == (10, False, clean.commit)
    (root / "notes").write_text("nobody added it")
    assert revision(root) == clean
    (root / "file").write_text("2")
    assert revision(root) == Revision(clean.commit, True)
    assert str(revision(root)) == f"{clean.commit}+"


def test_without_a_repository_of_its_own_a_tree_has_no_commit(tmp_path: Path) -> None:
    inner = repository(tmp_path) / "copy"
    inner.mkdir()
    assert revision(inner) == Revision(UNKNOWN, None)
    assert str(revision(inner)) == UNKNOWN


def test_what_changed_while_it_ran_is_no_clean_commit() -> None:
    clean = Revision("a" * 10, False)
    assert clean.until(clean) == clean
    assert clean.until(Revision("a" * 10, True)) == Revision("a" * 10, True)
    assert clean.until(Revision("b" * 10, False)) == Revision("a" * 10, True)
    assert Revision().until(clean) == Revision()


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ({}, "at a commit that was not recorded"),
        ({"commit": UNKNOWN, "dirty": None}, "at a commit that was not recorded"),
        ({"commit": "0123456789", "dirty": False}, "at commit `0123456789`, "),
        (
            {"commit": "0123456789", "dirty": True},
            "at commit `0123456789` with changes that were not committed",
        ),
    ],
)
def test_the_page_says_at_which_commit_its_run_was_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorded: dict[str, Any], shown: str
) -> None:
    saved = json.loads(page.RUN.read_text(encoding="utf-8"))
    saved = {name: value for name, value in saved.items() if name not in ("commit", "dirty")} | recorded
    monkeypatch.setattr(page, "RUN", tmp_path / "run.json")
    page.RUN.write_text(json.dumps(saved), encoding="utf-8")
    assert shown in page.recorded()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "No such file"),
        ("no JSON", "is not what the session wrote"),
        ("[]", "is not what the session wrote"),
        ('{"finished": true}', "is not what the session wrote"),
        ('{"finished": false}', "it did not come to its end"),
        ('{"finished": true, "form": "short"}', "of the short form"),
    ],
)
def test_what_is_no_long_run_takes_no_recorded_ones_place(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    given: str | None,
    reason: str,
) -> None:
    kept = page.RUN.read_text(encoding="utf-8")
    if given is not None and "form" in given:
        given = json.dumps(json.loads(kept) | json.loads(given))
    elif given == '{"finished": false}':
        given = json.dumps(json.loads(kept) | {"finished": False})
    for name in ("RUN", "PAGE"):
        copy = tmp_path / name
        copy.write_bytes(getattr(page, name).read_bytes())
        monkeypatch.setattr(page, name, copy)
    file = tmp_path / "given.json"
    if given is not None:
        file.write_text(given, encoding="utf-8")
    before = page.PAGE.read_bytes()
    assert page.main(argparse.Namespace(file=file, plot=None, mutants=None, soak=None)) == 1
    assert reason in capsys.readouterr().out
    assert (page.RUN.read_text(encoding="utf-8"), page.PAGE.read_bytes()) == (kept, before)
