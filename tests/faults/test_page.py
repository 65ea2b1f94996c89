"""The page's part on a soak is written from a record, and says nothing without one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults import page
from tests.faults.plan import Plan
from tests.faults.soak import Trend
from tests.faults.stops import Stop
from tests.faults.summary import summary
from tests.faults.trial import Result
from tests.revision import UNKNOWN

PLAN = Plan(seed=7, broker="amqp", seconds=3600.0, ordered=True)


def soaked() -> dict[str, Any]:
    """What a session with ``--soak`` writes, with two figures of its own."""
    result = Result(PLAN, 0.0, ended=3700.0, stops=[Stop("r0.0", 0.05)])
    result.verdict.committed = 640_000
    result.trends = {"memory_mb r0.0": Trend(61.7, 0.95, 0.71, 2.46)}
    return summary([result], seed=7, seconds=3800.0, good=True) | {
        "form": "soak", "finished": True, "commit": "0123456789", "dirty": False,
        "date": "2026-11-17T12:00:00+00:00", "command": "python -m tests.faults --seed 7 --soak 3600",
    }  # fmt: skip


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with copies of the page and its run, and no soak."""
    for name in ("RUN", "PAGE"):
        copy = tmp_path / name
        copy.write_bytes(getattr(page, name).read_bytes())
        monkeypatch.setattr(page, name, copy)
    for name in ("SOAK", "RESULTS", "REPOSITORY"):
        monkeypatch.setattr(page, name, tmp_path / "soak.json" if name == "SOAK" else tmp_path)
    return tmp_path


def written(soak: Path | None) -> int:
    return page.main(argparse.Namespace(file=page.RUN, plot=None, mutants=None, soak=soak))


def test_without_a_record_there_is_no_table(kept: Path) -> None:
    assert written(None) == 0
    assert page.soak() == "No soak by itself is recorded."
    assert page.soak() in page.PAGE.read_text(encoding="utf-8")


def test_a_soak_is_shown_with_its_commit_its_counts_and_its_trends(kept: Path) -> None:
    given = kept / "given.json"
    given.write_text(json.dumps(soaked()), encoding="utf-8")
    assert written(given) == 0
    assert json.loads(page.SOAK.read_text(encoding="utf-8")) == json.loads(given.read_text(encoding="utf-8"))
    shown = page.soak()
    for part in (
        "at commit `0123456789`",
        "| committed | 640000 |",
        "| memory_mb r0.0 | 61.7 | +0.71 | 2.46 |",
        "python -m nox -s faults -- --seed 7 --soak 3600",
    ):
        assert part in shown
    assert shown in page.PAGE.read_text(encoding="utf-8")
    assert "No soak by itself is recorded." not in page.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("which", ["file", "mutants", "soak"])
@pytest.mark.parametrize("commit", [{"commit": UNKNOWN, "dirty": None}, {}])
def test_a_record_of_no_commit_is_not_shown_and_it_is_said_how_to_make_one(
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    which: str,
    commit: dict[str, Any],
) -> None:
    shown = {
        "file": json.loads(page.RUN.read_text(encoding="utf-8")),
        "mutants": json.loads(page.MUTANTS.read_text(encoding="utf-8")),
        "soak": soaked(),
    }
    monkeypatch.setattr(page, "MUTANTS", kept / "kept-mutants.json")
    files: dict[str, Path] = {}
    for name, record in shown.items():
        of = commit if name == which else {"commit": "0123456789", "dirty": False}
        rest = {key: value for key, value in record.items() if key not in ("commit", "dirty")}
        files[name] = kept / f"{name}.json"
        files[name].write_text(json.dumps(rest | of), encoding="utf-8")
    before = page.PAGE.read_bytes()
    assert page.main(argparse.Namespace(plot=None, **files)) == 1
    told = capsys.readouterr().out
    assert f"{files[which]} does not say at which commit it was made" in told
    assert f"--json {which}.json" in told
    assert page.PAGE.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"form": "long"}, "it is of the long form"), ({"finished": False}, "it did not come to its end")],
)
def test_what_is_no_soak_takes_no_place(
    kept: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], reason: str
) -> None:
    given, before = kept / "given.json", page.PAGE.read_bytes()
    given.write_text(json.dumps(soaked() | change), encoding="utf-8")
    assert written(given) == 1
    assert reason in capsys.readouterr().out
    assert (page.PAGE.read_bytes(), page.SOAK.exists()) == (before, False)
