"""The page on performance is what the generator makes of the run kept in the repository, and that run is whole."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from benchmarks import figures, plots
from benchmarks.figures import Figure, Section
from benchmarks.page import PAGE, RESULTS, TEXTS, page

BARS = {
    "drain_vs_pgbench", "drain_keyed_vs_pgbench", "drain_vs_pgqueuer", "drain_keyed_vs_pgqueuer",
    "drain_vs_faststream_outbox", "drain_keyed_vs_faststream_outbox", "delete_vs_mark",
    "drain_kafka_vs_bound", "drain_nats_vs_bound", "drain_amqp_vs_bound",
    "enqueue_vs_insert", "enqueue_batch_vs_pgbench", "late_commit_ms", "idle_cpu_percent", "idle_statements_per_s",
    "claim_p50_ratio_growth", "claim_p99_ratio_growth", "claim_p50_ratio_snapshot", "claim_p99_ratio_snapshot",
    "claim_p50_ratio_blocked", "claim_p99_ratio_blocked", "claim_p50_ratio_not_due", "claim_p99_ratio_not_due",
    "python_us_per_row", "python_us_per_row_keyed", "hot_percent", "latency_p50_vs_peers",
    "latency_p95_ms_100", "latency_p95_ms_1000",
    "memory_rows_mb", "memory_rows_growth", "memory_large_mb", "memory_large_growth",
}  # fmt: skip
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
    assert saved["mode"] in ("quick", "full")
    assert saved["ratios"].keys() >= BARS | WITHOUT_A_BAR
    judged = {each.name for section in figures.sections_of(saved) for each in section.figures if each.bar}
    assert judged >= BARS
    assert {section.name for section in figures.sections_of(saved)} == TEXTS.keys()


def test_the_page_says_when_where_and_how_busy(saved: dict[str, Any]) -> None:
    text = page(saved)
    assert re.search(r"\| date \| 20\d\d-\d\d-\d\d \d\d:\d\d UTC \|", text)
    assert saved["machine"]["processor"] in text
    quiet = saved | {"machine": saved["machine"] | {"load_before": [0.1, 0, 0], "load_after": [0.1, 0, 0]}}
    busy = saved | {"machine": saved["machine"] | {"load_before": [99, 0, 0]}}
    assert ("was busy" in page(quiet), "was busy" in page(busy)) == (False, True)


def test_a_bar_is_met_or_missed() -> None:
    def verdict(value: float, **bar: float) -> str:
        return Figure("a", "a", value, value, value, **bar).verdict

    assert (verdict(1.0), verdict(1.0, at_least=1.0), verdict(0.9, at_least=1.0)) == ("", "met", "**missed**")
    assert (verdict(1.0, at_most=1.0), verdict(1.1, at_most=1.0)) == ("met", "**missed**")


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    found = figures.ratio("a_vs_b", "a / b", [10, 30, 80], [10, 10, 10])
    assert (found.value, found.lowest, found.highest) == (3.0, 1.0, 8.0)


def test_saved_and_read_again_it_is_the_same() -> None:
    section = Section("drain", [figures.figure("a_vs_b", "a / b", [1.0, 2.0], at_least=1.0)], ["a note"])
    rate = Section("enqueue", [figures.figure("a_rate", "a", [5.0], unit="rows/s")], [])
    saved = json.loads(json.dumps(figures.content([section, rate], mode="quick")))
    assert figures.sections_of(saved) == [section, rate]
    assert (saved["ratios"], saved["missed"], saved["mode"]) == ({"a_vs_b": 1.5}, [], "quick")


def test_two_figures_of_one_name_are_refused() -> None:
    section = Section("drain", [figures.figure("same", "a", [1.0])])
    with pytest.raises(ValueError, match="same"):
        figures.content([section, section])


def test_a_smoke_run_judges_nothing() -> None:
    section = Section("drain", [figures.figure("a", "a", [1.0], at_least=9.0)])
    assert [each.verdict for each in section.figures] == ["**missed**"]
    saved = figures.content([section.unjudged()])
    assert [each.verdict for each in figures.sections_of(saved)[0].figures] == ["not judged"]
    assert (saved["missed"], saved["ratios"]) == ([], {"a": 1.0})


def test_a_plot_has_a_bar_for_each_figure_and_is_well_formed() -> None:
    each = [figures.figure(name, f"<{name}> & co", [1.0, 2.0], at_least=1.0) for name in ("a", "b")]
    (plot,) = plots.plots(Section("drain", [*each, figures.figure("c", "c", [1.0], unit="ms")]))
    drawn = Xml.fromstring(plots.svg(plot))  # noqa: S314 - our own
    assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) == 2
