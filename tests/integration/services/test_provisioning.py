"""The cache is filled once, whole or not at all, however many runs ask at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.services.provision import cache_folder, cached, lock
from tests.services.sources import Unavailable


def test_runs_at_the_same_time_fill_an_entry_once(tmp_path: Path) -> None:
    fills: list[Path] = []
    together = threading.Barrier(4)

    def fill(folder: Path) -> None:
        fills.append(folder)
        (folder / "program").write_text("#!")

    def ask(_: int) -> Path:
        together.wait(10)
        return cached("program-1.0", fill, cache=tmp_path)

    with ThreadPoolExecutor(4) as pool:
        entries = set(pool.map(ask, range(4)))
    assert entries == {tmp_path / "program-1.0"}
    assert len(fills) == 1
    assert (tmp_path / "program-1.0" / "program").read_text() == "#!"


def test_a_failed_fill_leaves_no_entry(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise Unavailable("the network is down")

    with pytest.raises(Unavailable, match="the network is down"):
        cached("program-1.0", fail, cache=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["program-1.0.lock"]


def test_entries_are_readable_by_other_accounts(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        program = folder / "program"
        program.write_text("#!")
        program.chmod(0o700)

    entry = cached("program-1.0", fill, cache=tmp_path)
    assert entry.stat().st_mode & 0o777 == 0o755
    assert (entry / "program").stat().st_mode & 0o777 == 0o755


def test_waiting_for_another_run_is_bounded(tmp_path: Path) -> None:
    with (
        lock(tmp_path / "lock"),
        pytest.raises(Unavailable, match="held by another run"),
        lock(tmp_path / "lock", timeout_s=0.2),
    ):
        pass


def test_the_cache_goes_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_TEST_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    assert cache_folder().is_dir()
