"""The page of metrics, the dashboard and the alert rules name the metrics there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics import MetricWrapperBase

from outbox_core.observers.prometheus.metrics import Metrics
from tests.conftest import skip_or_fail
from tests.docs import markdown
from tests.services.provision import unpacked_package
from tests.services.sources import Missing, Unavailable

PAGE = (markdown.REPOSITORY / "docs" / "operations" / "metrics.md").read_text(encoding="utf-8")
DASHBOARD = markdown.REPOSITORY / "monitoring" / "grafana-dashboard.json"
ALERTS = markdown.REPOSITORY / "monitoring" / "alerts.yml"
ALERT_TESTS = ALERTS.with_name("alerts.test.yml")
ROW = re.compile(r"^\| `(outbox_\w+)` \| (counter|gauge|histogram) \| (.*?) \| (.*?) \|$", re.MULTILINE)
BOUNDS = re.compile(r"^\| `(outbox_\w+)` \| ([\d., ]+) \|$", re.MULTILINE)
NAMED = re.compile(r"\boutbox_[a-z_]+\b")


def metrics() -> list[MetricWrapperBase]:
    return list(vars(Metrics(CollectorRegistry())).values())


def name(metric: MetricWrapperBase) -> str:
    return f"{metric._name}_total" if metric._type == "counter" else metric._name


def samples() -> set[str]:
    """Every name that a query may use."""
    found: set[str] = set()
    for metric in metrics():
        found |= (
            {f"{metric._name}_{part}" for part in ("bucket", "sum", "count")}
            if isinstance(metric, Histogram)
            else {name(metric)}
        )
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [*found, *(str(variable["query"]) for variable in dashboard["templating"]["list"])]


def test_the_page_has_every_metric_as_it_is() -> None:
    assert ROW.findall(PAGE) == [
        (
            name(metric),
            metric._type,
            ", ".join(f"`{label}`" for label in metric._labelnames),
            metric._documentation,
        )
        for metric in metrics()
    ]


def test_the_page_has_the_buckets() -> None:
    listed = {found: [float(bound) for bound in bounds.split(", ")] for found, bounds in BOUNDS.findall(PAGE)}
    assert listed == {
        name(metric): list(metric._kwargs["buckets"]) for metric in metrics() if isinstance(metric, Histogram)
    }


def test_every_metric_named_anywhere_exists() -> None:
    known = samples()
    assert set(NAMED.findall(PAGE)) <= known | {name(metric) for metric in metrics()}
    for text in [*expressions(), *(rule["expr"] for rule in rules())]:
        assert set(NAMED.findall(text)) <= known, text
    assert {word for rule in rules() for word in NAMED.findall(str(rule["annotations"]))} <= known


def test_the_dashboard_shows_every_metric_that_is_not_the_age_of_another() -> None:
    shown = {word for text in expressions() for word in NAMED.findall(text)}
    for metric in metrics():
        if name(metric) != "outbox_status_timestamp_seconds":
            assert any(word.startswith(name(metric)) for word in shown), name(metric)


def test_labels_that_queries_group_by_exist() -> None:
    labels = {label for metric in metrics() for label in metric._labelnames} | {"le"}
    for text in [*expressions(), *(rule["expr"] for rule in rules())]:
        for grouped in re.findall(r"by \(([\w, ]+)\)", text):
            assert set(grouped.split(", ")) <= labels, text


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_there_is_a_rule_for_everything_that_wakes_somebody() -> None:
    by_metric = {word for rule in rules() for word in NAMED.findall(rule["expr"])}
    assert {
        "outbox_pending",
        "outbox_oldest_pending_age_seconds",
        "outbox_dead_total",
        "outbox_lost_leases_total",
        "outbox_breaker_open",
        "outbox_relay_leader",
    } <= by_metric
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))


def find_promtool() -> str:
    """The machine's own, or that of Debian's package."""
    if found := shutil.which("promtool"):
        return found
    try:
        return str(unpacked_package("prometheus") / "usr/bin/promtool")
    except Unavailable as error:
        skip_or_fail(Missing("promtool", "run `apt-get install prometheus`", [str(error)]))


def promtool(*args: str) -> str:
    """What it printed; fails when it ends with anything but 0."""
    run = subprocess.run([find_promtool(), *args], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_prometheus_loads_the_rules() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(ALERTS))


def test_alerts_fire_when_they_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(ALERT_TESTS))
