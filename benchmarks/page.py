"""`docs/explanation/performance.md`, written from the JSON of a run.

    python -m benchmarks.page benchmarks/results/latest.json

The JSON of the run that the page shows is kept in the repository; page and JSON change together.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.figures import Section

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results" / "latest.json"
PAGE = REPOSITORY / "docs" / "explanation" / "performance.md"

INTRODUCTION = """\
# Performance

What follows was measured by `python -m benchmarks` and written by `python -m benchmarks.page`: no figure of its tables
was typed. **Only ratios mean anything**, and only those of one run: both arms run by turns on the same server, and a
ratio is the median of the rounds' own ratios. Rates move with the machine, its disk and whatever else runs on it.
Measure on yours:

    python -m nox -s bench -- --quick                    # 5 minutes, rough
    python -m nox -s bench -- --json figures.json        # some hours, the figures to argue with
    python -m nox -s bench -- --only drain,peers         # some of them
"""

WHERE_IT_GOES = """\
## Where the time goes

A drain is bound by processors, not by waiting: a message costs the relay's process and PostgreSQL together about twice
what it costs pgbench's server alone, so on two cores a relay is about as fast as one pgbench client, and on more it is
faster. `perf record` of a relay at work showed a fifth of its time in Python's garbage collector, which therefore looks
less often in a process that is a relay; the rest is spread over the interpreter, the driver's decoding about a quarter
of it. Messages with keys cost more on both sides: one more statement for each claim, which looks for a predecessor of
every key, and the order kept in the relay. Looking and claiming at the same time gained 8 % and was given up, for rows
of one key in neighbouring claims were then given back again and again.

"""

TEXTS = {
    "enqueue": (
        "Writing",
        (
            "A message in a transaction of the application's, against the same row by a hand-written `INSERT` and"
            " against pgbench."
        ),
    ),
    "hot path": (
        "The relay's own Python",
        "What a message costs apart from the database and its driver, on rows from memory.",
    ),
    "drain": (
        "Emptying a backlog",
        (
            "The relay with its defaults, leadership, logging and a metrics observer, to a dispatcher that does"
            " nothing; against one pgbench client that runs the relay's own claim and completion, and against the loop"
            " that a first attempt at an outbox is."
        ),
    ),
    "long drain": ("A long backlog", "Memory, pace and storage over a long drain."),
    "peers": (
        "Beside others",
        (
            "Libraries that deliver from a PostgreSQL table, each at the best settings found for it. What they promise"
            " differs, and is noted under the table; [the comparison](comparison.md) has more."
        ),
    ),
    "brokers": (
        "To a broker",
        (
            "A relay does what the broker's own client does and drains a table besides, so it is held against"
            " `1 / (1 / client alone + 1 / drain to nobody)`."
        ),
    ),
    "commit to dispatcher": (
        "Latency",
        "From the return of the writer's COMMIT, in a process of its own, to the call of the dispatcher.",
    ),
    "claim": (
        "What a claim costs where claims become slow",
        "Every claim of a relay under steady traffic, against those on a clean table right before.",
    ),
    "scale": ("More relays, more tables", "Pace, processor time and connections."),
    "cleaner": (
        "Cleaning",
        "What those who enqueue and claim notice of a big clean-up; see [cleaning](../how-to/cleaning.md).",
    ),
}


def page(saved: dict[str, Any]) -> str:
    """The whole page."""
    sections = figures.sections_of(saved)
    parts = [INTRODUCTION, _run(saved), _bars(sections), WHERE_IT_GOES]
    parts += [_section(section) for section in sections]
    return "\n".join(parts)


def _run(saved: dict[str, Any]) -> str:
    machine, versions = saved["machine"], dict(saved["versions"])
    before, after = (", ".join(f"{each:g}" for each in machine[key]) for key in ("load_before", "load_after"))
    peers = [section.details.get("versions", {}) for section in figures.sections_of(saved)]
    versions |= {name: version for each in peers for name, version in each.items()}
    busy = max(machine["load_before"][0], machine["load_after"][0]) > machine["cores"]
    lines = [
        "## The run",
        "",
        "| | |",
        "|---|---|",
        f"| date | {datetime.fromisoformat(saved['date']):%Y-%m-%d %H:%M} UTC |",
        f"| form | `{saved['mode']}`, {saved['duration_s'] / 60:.0f} minutes |",
        (
            f"| machine | {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:g} GB,"
            f" {machine['system']} |"
        ),
        f"| load over 1, 5 and 15 minutes | {before} before, {after} after |",
        f"| versions | {', '.join(f'{name} {version}' for name, version in versions.items())} |",
        "",
    ]
    if busy:
        lines += [
            (
                "The machine was busy with other work: more processes wanted a core than it has. Spreads are wide,"
                " and bars that are missed here may be met on a quiet one, or the other way round."
            ),
            "",
        ]
    return "\n".join(lines)


def _bars(sections: list[Section]) -> str:
    every = [each for section in sections for each in section.figures if each.bar]
    judged = [each for each in every if each.valid]
    met = sum(each.verdict == "met" for each in judged)
    lines = [
        "## The bars",
        "",
        f"What the project holds itself to. In this run {met} of {len(judged)} were met.",
        "",
    ]
    lines += ["| name in the JSON | what | bar | measured | |", "|---|---|---|---|---|"]
    lines += [
        f"| `{each.name}` | {each.text} | {each.bar} | {figures.shown(each.value)} {each.unit} | {each.verdict} |"
        for each in every
    ]
    return "\n".join([*lines, ""])


def _section(section: Section) -> str:
    title, text = TEXTS[section.name]
    return "\n".join([f"## {title}", "", text, "", figures.report(section), ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="the JSON of a run of every benchmark")
    given = parser.parse_args()
    saved = json.loads(given.file.read_text(encoding="utf-8"))
    if saved["mode"] == "smoke" or saved["failed"]:
        print(f"{given.file} is not a run to show: its form is {saved['mode']}, failed: {saved['failed']}")
        return 1
    PAGE.write_text(page(saved), encoding="utf-8")
    if given.file.resolve() != RESULTS:
        figures.save(RESULTS, saved)
    print(f"wrote {PAGE.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
