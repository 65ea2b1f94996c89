"""Which bars there are by the code, so that a record from which one is missing is noticed.

Every benchmark names the figures that it holds against a bar in a form (`bars`), apart from the measuring of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from benchmarks import figures
from benchmarks.catalogue import BENCHMARKS, Mode
from benchmarks.figures import Section


def of(sections: Iterable[Section]) -> frozenset[str]:
    """All names that have a bar in sections like these, each in the form it was measured in."""
    modules = {each.title: each.module for each in BENCHMARKS.values()}
    return frozenset(
        name
        for section in sections
        for name in importlib.import_module(modules[section.name]).bars(Mode(section.run["mode"]))
    )


def gaps(saved: dict[str, Any]) -> list[str]:
    """What a saved run should have held against a bar and did not, and the other way round.

    Runs from before they had the list of their bars say nothing of this.
    """
    if "bars" not in saved:
        return []
    named, sections = {*saved["bars"]}, figures.sections_of(saved)
    judged = {each.name for section in sections for each in (*section.figures, *section.missing) if each.bar}
    return [
        *(f"{name} has a bar, and is not among the figures" for name in sorted(named - judged)),
        *(f"{name} is judged, and not named among the bars" for name in sorted(judged - named)),
    ]
