"""The recorded run of `docs/explanation/faults.md`, written from its JSON.

    python -m tests.faults.page FILE.json [--plot FILE.svg] [--mutants FILE.json] [--soak FILE.json]

The JSON of the runs that the page shows is kept in the repository; page and JSON change together.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.docs.markdown import replaced
from tests.faults.rows import ROWS, Row
from tests.revision import UNKNOWN, at_commit

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "tests" / "faults" / "results"
RUN, MUTANTS, SOAK = (RESULTS / f"{name}.json" for name in ("latest", "mutants", "soak"))
PAGE = REPOSITORY / "docs" / "explanation" / "faults.md"
PLOT = PAGE.with_name("faults-timeline.svg")
COMMANDS = (
    "python -m nox -s faults -- --long",
    "python -m tests.faults.mutants",
    "python -m nox -s faults -- --soak 3600",
)
"""What makes a record of a run, of mutants and of a soak."""
_FILES = re.compile(r" --(json|plot|report) \S+")


def recorded(run: Path | None = None) -> str:
    """The part of the page on a run, the one that is kept in the repository if not another."""
    saved: dict[str, Any] = json.loads((run or RUN).read_text(encoding="utf-8"))
    parts = [
        _about(saved),
        _runs(saved),
        _kinds(saved),
        _recoveries(saved),
        _counts(saved),
        _soaks(saved),
        _plot(saved),
    ]
    return "\n\n".join(part for part in parts if part)


def mutants(file: Path | None = None) -> str:
    """The part of the page on the product broken on purpose."""
    saved: dict[str, Any] = json.loads((file or MUTANTS).read_text(encoding="utf-8"))
    date = f"{datetime.fromisoformat(saved['date']):%Y-%m-%d}, {at_commit(saved)}, seed {saved['seed']}:"
    lines = [date, "", "| what is broken | how many messages it cost | found as | |", "|---|---:|---|---|"]
    for each in saved["mutants"]:
        verdict = "caught" if each["caught"] else "**not caught**"
        cost = f"{each['count']} of {each['committed']}"
        lines.append(f"| **{each['name']}**: {each['breaks']} | {cost} | `{each['finding']}` | {verdict} |")
    return "\n".join(lines)


def soak(file: Path | None = None) -> str:
    """The part of the page on a soak by itself, where one is kept: it takes an hour, and is not made anew each time."""
    if file is None and not SOAK.exists():
        return "No soak by itself is recorded."
    saved: dict[str, Any] = json.loads((file or SOAK).read_text(encoding="utf-8"))
    return "\n\n".join([_about(saved), _runs(saved), _soaks(saved)])


def matrix(run: Path | None = None) -> str:
    """The part of the page on the rows of the matrix, and those of them that need no broker; with what became of each
    in the run that is kept, where that says so."""
    saved: dict[str, Any] = json.loads((run or RUN).read_text(encoding="utf-8"))
    standings: dict[str, str] = saved.get("matrix", {})
    lines = ["| row | fault | kinds, and moments to die at | tests | by broker |", "|---:|---|---|---:|---|"]
    if standings:
        lines = [f"{lines[0]} in the recorded run |", f"{lines[1]}---|"]
    for row in ROWS:
        kinds = ", ".join(f"`{kind}`" for kind in row.kinds + row.points)
        tests = len(row.tests) + sum(map(len, row.by_broker.values()))
        standing = f" {standings.get(str(row.number), 'not in it')} |" if standings else ""
        lines.append(
            f"| {row.number} | {row.fault} | {kinds} | {tests or ''} | {_by_broker(row)} |{standing}"
        )
    alone = ", ".join(str(row.number) for row in ROWS if not _by_broker(row))
    return (
        "\n".join(lines)
        + f"\n\nNo broker is needed for the rows {alone}: their tests have a dispatcher of their own."
    )


def _by_broker(row: Row) -> str:
    """What of a row is shown anew with each broker; nothing when only tests without one show it."""
    tests = [f"tests of {', '.join(row.by_broker)}"] if row.by_broker else []
    kinds, points = ["kinds"] if row.kinds else [], ["moments, in the long form"] if row.points else []
    return ", ".join([*kinds, *points, *tests])


def _about(saved: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in saved["versions"].items())
    command = _FILES.sub("", saved["command"]).replace(
        "python -m tests.faults", "python -m nox -s faults --", 1
    )
    verdict = "The run was good." if saved["good"] else "**The run was not good as a whole.**"
    shown, absent, rows = (saved[f"matrix_rows{name}"] for name in ("_proven", "_absent", ""))
    matrix = (
        f" Of {rows} rows of the matrix {shown} were shown whole, {absent} in part or not at all."
        if rows
        else ""
    )
    if again := saved.get("second_try"):
        tests = ", ".join(f"`{test}`" for test in again)
        matrix += (
            f" These failed beside others, and passed when they were run once more by themselves: {tests}."
        )
    problems = "\n".join(f"- {problem}" for problem in [*saved["problems"], *saved["counts_short"]])
    date = f"{datetime.fromisoformat(saved['date']):%Y-%m-%d}, {at_commit(saved)}"
    lines = [
        f"{date}, {saved['seconds'] / 60:.0f} minutes on {saved['machine']};",
        f"{versions}.",
        f"{verdict}{matrix} The slowest of {saved['stops']} stops took {saved['slowest_stop_seconds']:.2f} s, and may",
        f"take {saved['stop_limit_seconds']:g} s. The same again:",
    ]
    text = "\n".join([*lines, "", "```sh", command, "```"])
    return f"{text}\n\nWhat was wrong:\n\n{problems}" if problems else text


def _runs(saved: dict[str, Any]) -> str:
    runs = saved["runs"]
    lines = [
        "| | " + " | ".join(f"{run['broker']}, {_kind(run)}" for run in runs) + " |",
        "|---|" + "---:|" * len(runs),
        "| seconds | " + " | ".join(f"{run['seconds']:.0f}" for run in runs) + " |",
    ]
    for name in runs[0]["figures"] if runs else ():
        lines.append(f"| {name} | " + " | ".join(str(run["figures"][name]) for run in runs) + " |")
    return "\n".join(lines)


def _kind(run: dict[str, Any]) -> str:
    return "soak" if run["trends"] else str(run["mode"])


def _kinds(saved: dict[str, Any]) -> str:
    felt = ", ".join(f"`{kind}` {times}" for kind, times in saved["faults_by_kind"].items())
    return f"{saved['faults']} faults were felt: {felt}." if felt else ""


def _recoveries(saved: dict[str, Any]) -> str:
    """How long it took to work again; records from before this was measured do not say."""
    slowest: dict[str, float] = saved.get("slowest_recovery_by_kind", {})
    limits = saved.get("recovery_limit_seconds", {})
    told = ", ".join(f"`{kind}` {seconds:.2f} of {limits[kind]:g} s" for kind, seconds in slowest.items())
    return (
        f"After a fault alone relays worked again within {saved['slowest_recovery_seconds']:.2f} s. By kind, the"
        f" slowest, of what each may take: {told}."
        if told
        else ""
    )


def _counts(saved: dict[str, Any]) -> str:
    if saved["form"] != "long":
        return ""
    lines = ["| to be reached in one long run | wanted | reached |", "|---|---:|---:|"]
    for name, wanted in saved["counts_wanted"].items():
        lines.append(f"| {name.replace('_', ' ')} | {wanted} | {saved['counts'][name]} |")
    return "\n".join(lines)


def _soaks(saved: dict[str, Any]) -> str:
    lines: list[str] = []
    for run in saved["runs"]:
        for name, trend in run["trends"].items():
            lines.append(f"| {name} | {trend['mean']} | {trend['grown']:+} | {trend['allowed']} |")
    head = ["| of the soak | mean | grown | allowed |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *lines]) if lines else ""


def _plot(saved: dict[str, Any]) -> str:
    return f"![Commits and arrivals in every second, and every fault in its lane, seed {saved['seed']}]({PLOT.name})"


def unfit(saved: dict[str, Any], form: str = "long") -> str:
    """Why a run is not one to show as a long one, or as a soak; empty when it is."""
    if not saved["finished"]:
        return "it did not come to its end"
    return (
        "" if saved["form"] == form else f"it is of the {saved['form']} form, and the page shows a {form} one"
    )


def unplaced(given: Mapping[str, Path | None]) -> str:
    """Which of these records does not say at which commit it was made; empty when all do. Their keys say how each is
    made."""
    for command, file in given.items():
        if file is not None:
            saved = json.loads(file.read_text(encoding="utf-8"))
            if saved.get("commit", UNKNOWN) == UNKNOWN:
                return (
                    f"{file} does not say at which commit it was made, for that was in no git checkout of the project;"
                    f" make one in a clone: {command} --json {file.name}"
                )
    return ""


def main(arguments: argparse.Namespace) -> int:
    """Nothing is written before everything that is given could be read."""
    try:
        saved = json.loads(arguments.file.read_text(encoding="utf-8"))
        problem = unfit(saved)
        shown, rows, broken = recorded(arguments.file), matrix(arguments.file), mutants(arguments.mutants)
        soaked = soak(arguments.soak)
        if arguments.soak is not None:
            wrong = unfit(json.loads(arguments.soak.read_text(encoding="utf-8")), "soak")
            problem = problem or (f"--soak {arguments.soak}: {wrong}" if wrong else "")
        given = (arguments.file, arguments.mutants, arguments.soak)
        problem = problem or unplaced(dict(zip(COMMANDS, given, strict=True)))
        if arguments.plot is not None and "<svg" not in arguments.plot.read_text(encoding="utf-8"):
            problem = f"{arguments.plot} is no plot"
    except OSError as error:
        problem = f"{error.strerror}: {error.filename}"
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        problem = f"it, or what --mutants or --soak names, is not what the session wrote ({what})"
    if problem:
        print(f"{arguments.file} is not a run to show: {problem}")
        return 1
    RESULTS.mkdir(exist_ok=True)
    if arguments.file.resolve() != RUN:
        RUN.write_text(json.dumps(saved, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for given, kept in ((arguments.plot, PLOT), (arguments.mutants, MUTANTS), (arguments.soak, SOAK)):
        if given is not None and given.resolve() != kept:
            shutil.copyfile(given, kept)
    text = replaced(PAGE.read_text(encoding="utf-8"), "recorded run", shown)
    text = replaced(replaced(text, "matrix", rows), "soak", soaked)
    PAGE.write_text(replaced(text, "mutants", broken), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(REPOSITORY)}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.page", description="Write the page's recorded run from its JSON."
    )
    parser.add_argument("file", type=Path, help="what `python -m tests.faults --json FILE` wrote")
    parser.add_argument("--plot", type=Path, help="what `--plot` wrote in the same run")
    parser.add_argument(
        "--mutants", type=Path, help="what `python -m tests.faults.mutants --json FILE` wrote"
    )
    parser.add_argument(
        "--soak", type=Path, help="what `python -m tests.faults --soak 3600 --json FILE` wrote"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(_arguments()))
