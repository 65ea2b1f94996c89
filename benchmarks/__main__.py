"""Every benchmark, one after the other on one PostgreSQL, into one JSON.

    python -m benchmarks [--quick | --smoke] [--json FILE] [--only drain,enqueue] [--plots DIR] [--dsn DSN]

Prints a Markdown table for each and, at the end, which bars were met. Ends with 1 when a benchmark failed to run; a
missed bar does not fail a run, for a busy machine misses bars too. `--smoke` runs everything at a tiny size and judges
nothing.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import common, figures, machine, plots
from benchmarks.common import Mode, Place
from benchmarks.figures import Section

MODULES = {
    "enqueue": "benchmarks.enqueue",
    "hot_path": "benchmarks.hot_path",
    "drain": "benchmarks.drain",
    "long_drain": "benchmarks.long_drain",
    "peers": "benchmarks.peers.beside",
    "brokers": "benchmarks.brokers",
    "latency": "benchmarks.latency",
    "claim_cost": "benchmarks.claim_cost",
    "scale": "benchmarks.scale",
    "cleaner": "benchmarks.cleaner",
}


def measure(place: Place, mode: Mode, names: Sequence[str]) -> tuple[list[Section], dict[str, Any]]:
    """Each benchmark's section, and how the run went: seconds of each, and why those failed that did."""
    sections: list[Section] = []
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name in names:
        print(f"== {name}", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            section = importlib.import_module(MODULES[name]).run(place, mode)
        except Exception as error:
            # One that fails must not take the others' figures with it.
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {error}"
        else:
            sections.append(section.unjudged() if mode is Mode.SMOKE else section)
            print(figures.report(sections[-1]), flush=True)
            print(flush=True)
        seconds[name] = round(time.monotonic() - began, 1)
        print(f"== {name}: {seconds[name]:g} s", file=sys.stderr, flush=True)
    return sections, {"seconds": seconds, "failed": failed}


def verdict(saved: dict[str, Any]) -> str:
    """One paragraph: what was met, missed, and failed to run."""
    every = [each for section in figures.sections_of(saved) for each in section.figures if each.bar]
    judged = [each for each in every if each.valid]
    met = sum(each.verdict == "met" for each in judged)
    lines = [f"{met} of {len(judged)} bars met; {len(every) - len(judged)} not judged."]
    lines += [
        f"Missed: {each.name} is {each.value:.3g}, the bar is {each.bar} ({each.text})."
        for each in judged
        if each.verdict != "met"
    ]
    lines += [f"Failed to run: {name}: {reason}" for name, reason in saved["failed"].items()]
    return "\n".join(lines)


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names) - set(MODULES))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(MODULES)}")
    return [name for name in MODULES if name in names]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common.arguments(parser)
    parser.add_argument("--only", type=_names, default=list(MODULES), help="names, with commas between them")
    parser.add_argument("--plots", type=Path, help="also draw the figures into this folder, as SVG")
    given = parser.parse_args()
    started, load = datetime.now(UTC), machine.load()
    with common.place(given.dsn) as place:
        versions = machine.versions(place.dsn)
        sections, went = measure(place, given.mode, given.only)
    saved = figures.content(
        sections,
        mode=given.mode,
        date=started.isoformat(timespec="seconds"),
        duration_s=round((datetime.now(UTC) - started).total_seconds(), 1),
        machine=machine.description() | {"load_before": load, "load_after": machine.load()},
        versions=versions,
        **went,
    )
    if given.json is not None:
        figures.save(given.json, saved)
    if given.plots is not None:
        plots.draw(given.plots, sections)
    print(verdict(saved))
    print(f"{saved['duration_s']:g} s in all.")
    return 1 if saved["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
