"""Benchmarks in pieces: what a run adds to another's file, whose turn it is, and what is told when something is not
there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import common, drain, figures, machine, running
from benchmarks.catalogue import BENCHMARKS, Mode, listing
from benchmarks.common import NO_PGBENCH, Place
from benchmarks.figures import Missing, Section
from benchmarks.long_drain import growth
from benchmarks.peers import beside, environments, tune
from benchmarks.turns import rotated


def measured(name: str, value: float, **run: Any) -> Section:
    about = {"mode": "quick", "date": "2026-01-01T00:00:00+00:00", "seconds": 10.0} | run
    return Section(name, [figures.figure(f"{name}_ratio", name, [value] * 3, at_least=1.0)], run=about)


def test_a_section_measured_again_takes_the_place_of_the_older_one() -> None:
    older = running.assembled([measured("drain", 1.0), measured("scale", 2.0)], {"peers": "no network"})
    newer = measured("drain", 3.0, mode="full", date="2026-01-02T00:00:00+00:00", seconds=5.0)
    merged = running.merged(older, [newer, measured("peers", 4.0)], {"cleaner": "a bug"})
    assert merged["ratios"] == {"drain_ratio": 3.0, "peers_ratio": 4.0, "scale_ratio": 2.0}
    assert merged["failed"] == {"cleaner": "a bug"}
    assert (merged["mode"], merged["date"]) == ("mixed", "2026-01-02T00:00:00+00:00")
    assert merged["duration_s"] == 25.0
    modes = {each.name: each.run["mode"] for each in figures.sections_of(merged)}
    assert modes == {"drain": "full", "peers": "quick", "scale": "quick"}


def test_each_round_begins_with_another_arm_and_has_them_all() -> None:
    rounds = [rotated(["a", "b", "c"], number) for number in range(4)]
    assert [each[0] for each in rounds] == ["a", "b", "c", "a"]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)


def test_without_pgbench_its_figures_are_missing_and_say_what_to_do() -> None:
    size = drain.SIZES[Mode.QUICK]
    turns = drain.arms(Place("postgresql://nowhere", None), size)
    for arm in turns:
        arm.rates = [1000.0, 1100.0, 1200.0]
        arm.results = [{"cpu": 1.0, "server_cpu": 1.0, "published": 1000}] * 3
    section = drain.section(turns, size)
    assert {each.name: each.why for each in section.missing} == {
        "drain_vs_pgbench": NO_PGBENCH,
        "drain_keyed_vs_pgbench": NO_PGBENCH,
    }
    assert "drain_vs_naive" in {each.name for each in section.figures}
    assert "OUTBOX_BENCHMARK_PGBENCH" in NO_PGBENCH


def test_a_peer_that_cannot_be_installed_is_named_with_its_bars() -> None:
    peer = next(each for each in environments.peers() if each.name == "pgqueuer")
    first, second = beside.not_measured(peer, "pgqueuer cannot be installed:\nno network")
    assert (first.name, second.name) == ("drain_vs_pgqueuer", "drain_keyed_vs_pgqueuer")
    assert (first.bar, first.why) == ("≥ 3", "pgqueuer cannot be installed: no network")


def test_the_quickest_is_not_known_while_one_of_the_others_is_not_timed() -> None:
    pgqueuer = next(each for each in environments.peers() if each.name == "pgqueuer")
    relay, other = beside.Rounds(latency=[1.6, 1.7, 1.8]), beside.Rounds(latency=[2.0, 2.1, 2.2])
    for whole in (True, False):
        found = {each.name for each in beside.latencies_beside(relay, {pgqueuer: other}, whole=whole)}
        assert ("latency_p50_vs_peers" in found) is whole
        assert {"beside_peers_relay_p50_ms", "pgqueuer_p50_ms"} <= found
    assert beside.untimed({pgqueuer: other}, ("pgqueuer", "txoutbox")) == ["txoutbox"]


def test_settings_of_peers_are_tried_by_drains_alone() -> None:
    size = tune.drains(100, 2)
    assert (size.rows, size.peer_rows, size.repeats, size.timed) == (100, 100, 2, ())


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def place(_: str | None) -> Iterator[Place]:
        yield Place("postgresql://nowhere", None)

    monkeypatch.setattr(common, "place", place)
    monkeypatch.setattr(machine, "versions", lambda _: {})


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize(("missing", "code"), [([], 0), ([Missing("a_vs_b", "a / b", "no b")], 1)])
def test_what_could_not_be_measured_is_in_the_exit_code_and_in_the_file(
    missing: list[Missing],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "figures.json"
    figures.save(file, running.assembled([measured("scale", 2.0)], {}))
    found = Section("drain", [figures.figure("x", "x", [1.0])], missing=missing)
    monkeypatch.setattr(drain, "run", lambda _place, _mode: found)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--only", "drain", "--into", str(file)])
    assert running.main("…") == code
    saved = json.loads(file.read_text(encoding="utf-8"))
    assert saved["ratios"] == {"x": 1.0, "scale_ratio": 2.0}
    assert saved["missing"] == {each.name: each.why for each in missing}
    assert ("Not measured: a_vs_b: no b" in capsys.readouterr().out) == bool(missing)


@pytest.mark.usefixtures("no_server")
def test_one_that_fails_to_run_is_told_and_keeps_its_older_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_place: Place, _mode: Mode) -> Section:
        raise RuntimeError("it broke")

    file = tmp_path / "figures.json"
    figures.save(file, running.assembled([measured("drain", 2.0)], {}))
    monkeypatch.setattr(drain, "run", broken)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--only", "drain", "--into", str(file)])
    assert running.main("…") == 1
    saved = json.loads(file.read_text(encoding="utf-8"))
    assert (saved["failed"], saved["ratios"]) == ({"drain": "RuntimeError: it broke"}, {"drain_ratio": 2.0})


def test_the_list_tells_how_long_each_takes_and_all_of_them() -> None:
    lines = listing(list(BENCHMARKS)).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == list(BENCHMARKS)
    assert lines[-1].split()[2] == str(sum(each.smoke for each in BENCHMARKS.values()))
    assert sum(each.quick for each in BENCHMARKS.values()) <= 300


def test_growth_is_that_after_the_warming_up() -> None:
    warming = [(rows, rows / 10) for rows in range(0, 250, 10)]
    flat = [(rows, 40.0) for rows in range(260, 1001, 10)]
    assert growth(warming + flat, 1000) == 1.0
    leaking = [(rows, 40.0 + rows / 10) for rows in range(260, 1001, 10)]
    assert growth(warming + leaking, 1000) > 1.5


@pytest.mark.parametrize(
    ("words", "variables", "told"),
    [
        (["--dsn", "garbage"], {}, "--dsn names no PostgreSQL that can be used"),
        (["--dsn", "postgresql://127.0.0.1:1/x"], {}, "--dsn names no PostgreSQL that can be used"),
        (["--into", "foreign.json"], {}, "--into foreign.json cannot be added to: it is not what"),
        (["--into", "."], {}, "--into . is a folder; name a file"),
        ([], {"OUTBOX_BENCHMARK_BROKERS": "kafka,foo"}, "names 'foo'; there are kafka, nats, amqp"),
        ([], {"OUTBOX_BENCHMARK_PGBENCH": "/nope"}, "OUTBOX_BENCHMARK_PGBENCH=/nope is no program"),
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_is_measured(
    words: list[str],
    variables: dict[str, str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"sections": [{"name": "drain"}]}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(common, "place", None)  # it comes to no measuring
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", *words])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        running.main("…")
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert foreign.read_text(encoding="utf-8") == '{"sections": [{"name": "drain"}]}'
