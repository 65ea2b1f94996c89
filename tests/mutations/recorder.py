"""A plugin of pytest that writes down, line by line, what became of each test and where the product came from."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.mutations.tree import PACKAGES

VARIABLE = "OUTBOX_MUTATIONS_RECORD"


def _write(**line: object) -> None:
    with Path(os.environ[VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = str(getattr(crash, "message", report.longrepr) or "")
    _write(test=report.nodeid, when=report.when, outcome=report.outcome, reason=reason)


def pytest_sessionfinish() -> None:
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in PACKAGES}
    _write(imported=[file for file in files.values() if file is not None])
