"""A session says of what it was made."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.faults import page
from tests.revision import UNKNOWN, Revision, revision


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
