"""Benchmarks in pieces: what a run adds to another's file, whose turn it is, and what is told when something is not
there."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import common, drain, enqueue, figures, machine, running, scale
from benchmarks.catalogue import BENCHMARKS, Mode, listing
from benchmarks.common import NO_PGBENCH, Place
from benchmarks.figures import Missing, Section
from benchmarks.long_drain import growth
from benchmarks.peers import beside, environments, tune
from benchmarks.turns import rotated
from benchmarks.verdicts import FEWEST_ROUNDS


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


@pytest.mark.parametrize("mode", Mode)
def test_who_is_judged_drains_as_many_rows_as_the_relay(mode: Mode) -> None:
    size = beside.SIZES[mode]
    judged = [peer for peer in environments.peers() if peer.slug in beside.BARS]
    assert len(judged) == len(beside.BARS)
    assert {beside.rows_of(peer, size) for peer in judged} == {size.rows}


@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL])
def test_whatever_has_a_bar_has_rounds_enough_to_be_judged(mode: Mode) -> None:
    rounds = {
        f"{name}.{field}": value
        for name, each in BENCHMARKS.items()
        for field, value in vars(importlib.import_module(each.module).SIZES[mode]).items()
        if field in ("repeats", "writers_repeats", "latency_rounds")
    }
    assert {"enqueue.writers_repeats", "peers.repeats", "drain.repeats"} <= rounds.keys()
    rounds.pop("brokers.latency_rounds", None)  # they have no bar
    assert {what: count for what, count in rounds.items() if count < FEWEST_ROUNDS} == {}


def test_the_ratio_with_building_stands_right_under_the_one_with_the_bar() -> None:
    judged, built, *rates = enqueue.beside_insert("enqueue", "single", [9.0] * 3, [7.0] * 3, [10.0] * 3)
    assert (judged.name, judged.value, judged.bar) == ("enqueue_vs_insert", 0.9, "≥ 0.9")
    assert (built.name, built.value, built.bar) == ("enqueue_with_building_vs_insert", 0.7, "")
    assert [each.unit for each in rates] == ["rows/s", "rows/s"]
    assert "bar leaves out what it costs to build" in enqueue.NOT_BUILDING


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
    monkeypatch.setattr(drain, "bars", lambda _mode: frozenset())
    monkeypatch.setattr(scale, "bars", lambda _mode: frozenset({"scale_ratio"}))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--only", "drain", "--into", str(file)])
    assert running.main("…") == code
    saved = json.loads(file.read_text(encoding="utf-8"))
    assert saved["ratios"] == {"x": 1.0, "scale_ratio": 2.0}
    assert saved["missing"] == {each.name: each.why for each in missing}
    assert ("Not measured: a_vs_b: no b" in capsys.readouterr().out) == bool(missing)


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"x"}, ""),
        ({"x", "y"}, "Not as the code says: y has a bar, and is not among the figures."),
        ((), "Not as the code says: x is judged, and not named among the bars."),
    ],
)
def test_a_figure_that_should_have_been_judged_and_is_not_there_is_in_the_exit_code(
    declared: set[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "figures.json"
    found = Section("drain", [figures.figure("x", "x", [1.0], at_least=1.0)])
    monkeypatch.setattr(drain, "run", lambda _place, _mode: found)
    monkeypatch.setattr(drain, "bars", lambda _mode: frozenset(declared))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--only", "drain", "--json", str(file)])
    assert running.main("…") == bool(told)
    assert told in capsys.readouterr().out
    assert json.loads(file.read_text(encoding="utf-8"))["bars"] == sorted(declared)


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


@pytest.mark.usefixtures("no_server")
def test_an_interruption_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_place: Place, _mode: Mode) -> Section:
        raise KeyboardInterrupt

    file = tmp_path / "figures.json"
    found = Section("drain", [figures.figure("x", "x", [1.0])])
    monkeypatch.setattr(drain, "run", lambda _place, _mode: found)
    monkeypatch.setattr(drain, "bars", lambda _mode: frozenset())
    monkeypatch.setattr(scale, "run", interrupted)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--only", "drain,scale", "--json", str(file)])
    assert running.main("…") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"
    assert json.loads(file.read_text(encoding="utf-8"))["ratios"] == {"x": 1.0}


@pytest.mark.asyncio
async def test_an_error_on_the_way_out_does_not_hide_an_interruption() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("the connection is busy")

    task = asyncio.create_task(common.interruptible(work()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


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


@pytest.mark.parametrize(("mode", "refused"), [("full", True), ("smoke", False)])
def test_what_means_nothing_takes_no_measured_sections_place(
    mode: str,
    refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "figures.json"
    figures.save(file, running.assembled([measured("drain", 2.0, mode=mode)], {}))
    before = file.read_text(encoding="utf-8")

    @contextmanager
    def nowhere(_: str | None) -> Iterator[Place]:
        raise ValueError("it got as far as this")
        yield

    monkeypatch.setattr(common, "place", nowhere)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--smoke", "--into", str(file)])
    if refused:
        with pytest.raises(SystemExit):
            running.main("…")
    else:
        assert running.main("…") == 1
    told = capsys.readouterr().err
    assert ("has figures of another form (full)" in told, "as far as this" in told) == (refused, not refused)
    assert file.read_text(encoding="utf-8") == before


def test_a_peer_that_nobody_knows_is_refused_with_the_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "place", None)  # it comes to no measuring
    monkeypatch.setattr(sys, "argv", ["tune", "pgqueuer", "nosuch"])
    with pytest.raises(SystemExit) as ended:
        tune.main()
    assert ended.value.code == 2
    assert "unknown: nosuch; there are pgqueuer, faststream-outbox" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "variables", "told"),
    [
        (["--dsn", "garbage"], {}, "--dsn names no PostgreSQL that can be used"),
        (["--dsn", "postgresql://127.0.0.1:1/x"], {}, "--dsn names no PostgreSQL that can be used"),
        (["--into", "foreign.json"], {}, "--into foreign.json cannot be added to: it is not what"),
        (["--into", "."], {}, "--into . is a folder; name a file"),
        (["--json", "/proc/x.json"], {}, "--json /proc/x.json cannot be written: "),
        (["--into", "/proc/x/y.json"], {}, "--into /proc/x/y.json cannot be written: "),
        (["--json", "foreign.json/x.json"], {}, "--json foreign.json/x.json cannot be written: "),
        (["--plots", "foreign.json"], {}, "--plots foreign.json is no folder that can be made: File exists"),
        (["--plots", "/proc/plots"], {}, "--plots /proc/plots is no folder that can be made: "),
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
