"""The page on performance is what the generator makes of the run kept in the repository, and that run is whole."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from benchmarks import bars, figures, plots, running
from benchmarks.catalogue import BENCHMARKS, Mode
from benchmarks.figures import Missing, Section
from benchmarks.page import PAGE, RESULTS, TEXTS, page, unfit
from benchmarks.verdicts import Verdict

SINCE_THE_LIST = ("claim_mean_ratio_", "enqueue_1_writers_", "enqueue_16_writers_", "enqueue_32_writers_")
"""Bars that are no older than the list of bars in a record: one without the list may be without them."""
WITHOUT_A_BAR = {"drain_vs_txoutbox", "drain_vs_procrastinate", "drain_growth"}


@pytest.fixture(scope="module")
def saved() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def test_the_page_is_that_of_the_run(saved: dict[str, Any]) -> None:
    """When it is not: ``python -m benchmarks.page benchmarks/results/latest.json``."""
    assert PAGE.read_text(encoding="utf-8") == page(saved)


def test_the_run_is_whole(saved: dict[str, Any]) -> None:
    assert not saved["failed"]
    assert saved["mode"] in ("quick", "full", "mixed")
    assert saved["ratios"].keys() >= WITHOUT_A_BAR
    assert {section.name for section in figures.sections_of(saved)} == TEXTS.keys()


def lacking(saved: dict[str, Any]) -> set[str]:
    """The bars of the code that a record was not held against."""
    declared = bars.of(figures.sections_of(saved))
    if "bars" in saved:
        assert saved["bars"] == sorted(declared)
    else:
        declared = frozenset(name for name in declared if not name.startswith(SINCE_THE_LIST))
    judged = {each.name for section in figures.sections_of(saved) for each in section.figures if each.bar}
    return {*declared} - judged


def test_the_run_was_held_against_every_bar_of_the_code(saved: dict[str, Any]) -> None:
    """When it was not: run that benchmark again, ``--into benchmarks/results/latest.json``."""
    assert lacking(saved) == set()


def test_a_bar_that_is_not_in_the_record_is_noticed(saved: dict[str, Any]) -> None:
    sections = [
        each | {"figures": [one for one in each["figures"] if one["name"] != "drain_vs_naive"]}
        for each in saved["sections"]
    ]
    assert lacking(saved | {"sections": sections}) == {"drain_vs_naive"}
    listed = saved | {"bars": sorted(bars.of(figures.sections_of(saved)))}
    assert {name for name in lacking(listed) if not name.startswith(SINCE_THE_LIST)} == set()
    assert "drain_vs_naive has a bar, and is not among the figures" in unfit(listed | {"sections": sections})
    fewer = listed | {"bars": [name for name in listed["bars"] if name != "delete_vs_mark"]}
    assert "delete_vs_mark is judged, and not named among the bars" in unfit(fewer)
    with pytest.raises(AssertionError):
        lacking(fewer)


def test_every_benchmark_names_its_bars() -> None:
    for mode in Mode:
        sections = [Section(each.title, [], run={"mode": mode}) for each in BENCHMARKS.values()]
        found = {section.name: bars.of([section]) for section in sections}
        assert all(found.values())
        assert bars.of(sections) == frozenset().union(*found.values())
        assert sum(map(len, found.values())) == len(bars.of(sections))
    full = bars.of([Section(each.title, [], run={"mode": "full"}) for each in BENCHMARKS.values()])
    assert full >= {
        "enqueue_1_writers_vs_insert", "enqueue_16_writers_vs_insert", "enqueue_32_writers_vs_insert",
        "claim_mean_ratio_growth_5m", "claim_p99_ratio_blocked", "tables_50_connections", "drain_keyed_vs_pgqueuer",
        "latency_p50_ms_100", "latency_p50_ms_1000", "latency_p95_ms_100", "latency_p95_ms_1000",
    }  # fmt: skip


def test_the_page_says_when_where_and_how_busy(saved: dict[str, Any]) -> None:
    text = page(saved)
    for section in saved["sections"]:
        when = datetime.fromisoformat(section["run"]["date"])
        assert f"| `{section['run']['mode']}` | {when:%Y-%m-%d %H:%M} |" in text
        assert section["run"]["machine"]["processor"] in text

    def with_others(cores: float) -> dict[str, Any]:
        sections = [each | {"run": each["run"] | {"others_cores": cores}} for each in saved["sections"]]
        return saved | {"sections": sections}

    assert ("was busy" in page(with_others(0.1)), "was busy" in page(with_others(1.5))) == (False, True)


def test_a_run_that_is_not_whole_is_not_shown(saved: dict[str, Any]) -> None:
    assert unfit(saved) == ""
    assert "drain" in unfit(saved | {"sections": [e for e in saved["sections"] if e["name"] != "drain"]})
    assert "peers" in unfit(saved | {"failed": {"peers": "no network"}})
    first, *others = saved["sections"]
    assert first["name"] in unfit(
        saved | {"sections": [first | {"run": first["run"] | {"mode": "smoke"}}, *others]}
    )


def test_a_run_of_what_is_in_no_commit_is_not_shown(saved: dict[str, Any]) -> None:
    first, *others = saved["sections"]
    dirty = first["run"] | {"versions": first["run"]["versions"] | {"commit": "0123456789+"}}
    assert unfit(saved | {"sections": [first | {"run": dirty}, *others]}).endswith(first["name"])


def test_a_run_that_knows_nothing_of_a_bar_is_not_shown(saved: dict[str, Any]) -> None:
    sections = [
        each | {"figures": [one for one in each["figures"] if one["name"] != "drain_vs_pgqueuer"]}
        for each in saved["sections"]
    ]
    known = [name for name in saved["bars"] if name != "drain_vs_pgqueuer"]
    assert "drain_vs_pgqueuer" in unfit(saved | {"sections": sections, "bars": known})


@pytest.mark.parametrize(
    ("values", "at_least", "at_most"),
    [
        ([1.0, 1.1, 1.2], Verdict.MET, Verdict.MISSED_WITHIN_SPREAD),
        ([0.7, 0.8, 0.9], Verdict.MISSED, Verdict.MET),
        ([0.9, 1.1, 1.2], Verdict.MET_WITHIN_SPREAD, Verdict.MISSED_WITHIN_SPREAD),
        ([0.8, 0.9, 1.1], Verdict.MISSED_WITHIN_SPREAD, Verdict.MET_WITHIN_SPREAD),
        ([5.0, 6.0], Verdict.UNCLEAR, Verdict.UNCLEAR),
        ([0.5], Verdict.UNCLEAR, Verdict.UNCLEAR),
    ],
)
def test_a_verdict_says_no_more_than_the_rounds(
    values: list[float], at_least: Verdict, at_most: Verdict
) -> None:
    verdicts = (
        figures.figure("a", "a", values, at_least=1.0).verdict,
        figures.figure("a", "a", values, at_most=1.0).verdict,
    )
    assert verdicts == (at_least, at_most)
    assert figures.figure("a", "a", values).verdict is Verdict.NONE


def test_what_was_not_measured_is_told_with_the_reason() -> None:
    missing = Missing("drain_vs_pgbench", "relay / pgbench", "there is no pgbench", at_least=1.0)
    section = Section("drain", [figures.figure("a_vs_b", "a / b", [2.0])], missing=[missing])
    assert "| relay / pgbench | not measured: there is no pgbench |" in figures.report(section)
    saved = json.loads(json.dumps(figures.content([section], failed={})))
    assert saved["ratios"] == {"a_vs_b": 2.0}
    assert saved["verdicts"] == {"drain_vs_pgbench": "not measured"}
    assert saved["missing"] == {"drain_vs_pgbench": "there is no pgbench"}
    assert "Not measured: drain_vs_pgbench: there is no pgbench" in running.verdict(saved)


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    found = figures.ratio("a_vs_b", "a / b", [10, 30, 80], [10, 10, 10])
    assert (found.value, found.lowest, found.highest) == (3.0, 1.0, 8.0)


def test_saved_and_read_again_it_is_the_same() -> None:
    section = Section("drain", [figures.figure("a_vs_b", "a / b", [1.0, 2.0], at_least=1.0)], ["a note"])
    rate = Section("enqueue", [figures.figure("a_rate", "a", [5.0], unit="rows/s")], [])
    saved = json.loads(json.dumps(figures.content([section, rate], mode="quick")))
    assert figures.sections_of(saved) == [section, rate]
    assert (saved["ratios"], saved["missed"], saved["mode"]) == ({"a_vs_b": 1.5}, [], "quick")
    assert saved["verdicts"] == {"a_vs_b": "unclear: too few rounds"}


def test_two_figures_of_one_name_are_refused() -> None:
    section = Section("drain", [figures.figure("same", "a", [1.0])])
    with pytest.raises(ValueError, match="same"):
        figures.content([section, section])


def test_a_smoke_run_judges_nothing() -> None:
    section = Section("drain", [figures.figure("a", "a", [1.0, 1.0, 1.0], at_least=9.0)])
    assert [each.verdict for each in section.figures] == ["missed"]
    saved = figures.content([section.unjudged()])
    assert [each.verdict for each in figures.sections_of(saved)[0].figures] == ["not judged"]
    assert (saved["missed"], saved["ratios"]) == ([], {"a": 1.0})


def test_a_plot_has_a_bar_for_each_figure_and_is_well_formed() -> None:
    each = [figures.figure(name, f"<{name}> & co", [1.0, 2.0], at_least=1.0) for name in ("a", "b")]
    (plot,) = plots.plots(Section("drain", [*each, figures.figure("c", "c", [1.0], unit="ms")]))
    drawn = Xml.fromstring(plots.svg(plot))  # noqa: S314 - our own
    assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) == 2
