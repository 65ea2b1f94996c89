"""`docs/explanation/performance.md`, written from the JSON of a run.

    python -m benchmarks.page benchmarks/results/latest.json

The JSON of the run that the page shows is kept in the repository; page and JSON change together.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import bars, figures
from benchmarks.figures import Section
from benchmarks.verdicts import Verdict

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results" / "latest.json"
PAGE = REPOSITORY / "docs" / "explanation" / "performance.md"

INTRODUCTION = """\
# Performance

What follows was measured by `python -m benchmarks` and written by `python -m benchmarks.page`: no figure of its tables
was typed. **Only ratios mean anything**, and only those of one section: its arms run by turns on the same server, and a
ratio is the median of the rounds' own ratios. Rates move with the machine, its disk and whatever else runs on it.
Measure on yours:

    python -m nox -s bench -- --quick                                    # 5 minutes, rough
    python -m nox -s bench -- --json figures.json                        # 50 minutes, the figures to argue with
    python -m nox -s bench -- --only drain,peers --into figures.json     # some of them again, or all in pieces
    python -m nox -s bench -- --list                                     # about how long each takes
"""

OTHERS_CORES = 0.25
"""More than this and the page says that the machine was busy."""

VERDICTS = """\
A bar is **met** or **missed** when the lowest and the highest of at least three rounds are on the same side of it. When
they are not, the median decides and the table says `within spread`: another run may end on the other side. With fewer
rounds it is `unclear`.
"""

WHERE_IT_GOES = """\
## Where the time goes

A drain is bound by processors, not by waiting. The statements of a claim and of a record cost PostgreSQL the same under
a relay as under pgbench's one client; the relay claims, dispatches and records at the same time, on two sessions and in
its own process, and pays for its Python with the second core. So on two cores it is somewhat faster than pgbench's one
client, and with keys about as fast (slower in a short drain, for its claims begin small and its last record has nothing
beside it); with more cores it has more to gain than pgbench.

Of the relay's own time a third is the way through dispatcher and settlement, a quarter the recording of outcomes
(encoding their ids, telling observers, letting go of the messages), a fifth reading rows and making messages of them,
and the rest the event loop's and the driver's. The full form of `hot_path` counts its instructions with `callgrind`.
Times were the dearest part once: a row's two cost the driver two microseconds, and come as numbers now. The garbage
collector looks less often in a process that is a relay. Planning was dear, too: PostgreSQL made a plan for every single
claim, for its arrays, and makes it once now. Messages with keys cost more on both sides: the claim looks for a
predecessor of each key, and the relay keeps their order. When all of a backlog has one key, its messages go to the
dispatcher one after another: to one that does nothing that makes ten thousand a second and more, and what such a key is
slow for is the round trip to a broker, for which each of its messages has to wait.

To a broker a row costs the relay's process about what it costs to nobody, and what it costs the client alone, and the
making of headers, which the client alone has ready before its clock starts and the bound leaves out. That weighs most
where the client is quickest, which is Kafka's.

Bars in microseconds and milliseconds move with the machine's clock as much as with the code: in the rounds of one drain
pgbench itself was seen to differ by half. What stays the same is the number of instructions. Measured two days running
(the first is `git show 8278548:benchmarks/results/latest.json`), on virtual machines of one kind, the code of a relay's
hot path took 36,400 and 37,400 instructions a message (44,600 and 46,000 with keys) and 5.6 and 7.8 µs; pgbench's drain
came to 38,400 and 26,000 rows a second, and to build and validate a message took 9.3 and 18.9 µs, with no line of it
changed. On the slower of the two `message_build_us` and `python_us_per_row_keyed` are missed; on the quicker they were
met (9.3 and 12.6 µs). So was `delete_vs_mark` (1.33): to delete saves PostgreSQL a third of its work and the relay's
process nothing, and the slower that is, the less of the third shows.

The latency at 1,000 messages a second, a transaction each, is that of a machine near its end: writer, database and
relay share two cores and a disk, and each transaction waits for that. Relays with keys are set beside peers without,
for which no order has to be kept: keys cost PostgreSQL 1.4 times as much a row and the relay's process 1.2 times the
instructions, which is what `drain_keyed_vs_pgqueuer` lacks. The quickest peer is told of every single message by
`NOTIFY`, for which writers wait in line when they commit; a relay's writers tell it once in 50 ms, and what comes in
between it finds by looking, half a pause of a millisecond later. Ten times a second every message tells of itself
(`latency_idle_p50_vs_peers`), and the quickest peer is the quicker there, too: before a relay claims it looks, four
times a second, which transactions are running, and its claim asks for the leader's row and for what comes before its
rows in their keys.

Three times pgqueuer's pace is met in some hours and missed in others, with the same code (the shorter the drain, the
more the beginning weighs, when claims are small). With 16 and 32 writers in one process, and with many messages in a
transaction, an enqueue comes to four fifths of a hand-written INSERT: a process that does nothing else has no other
time to lose. Both encode the payload, digest it and make an id; what the hand-written one leaves out is to validate the
message, to check its size and what PostgreSQL would refuse of its text, to digest also what tells two messages apart
beside the payload, and to see that a transaction is open (`python -m benchmarks.hot_path` counts the instructions of
both). A batch against pgbench (`enqueue_batch_vs_pgbench`) is held against a script that has its rows ready.

`claim_p99_ratio_blocked` depends on chance, too: a sweep past 100,000 held rows takes 100 to 240 ms, and there is a
handful of them among some hundred claims. That is about a hundredth, so that p99 is one of them or is not. The mean has
them all, and is held against the same bar. Sweeps by themselves stand in the table of claims, on the clean table too:
they come past everything that a trap has, which is ten times as much and more, and are made the seldomer the longer
they take, a hundredth of the time at most where they take less than 50 ms, a twentieth at most where they take longer.
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
            " `1 / (1 / client alone + 1 / drain to nobody)`. The client is used at its best, and a relay that works"
            " side by side may pass what is added up there."
        ),
    ),
    "commit to dispatcher": (
        "Latency",
        "From the return of the writer's COMMIT, in a process of its own, to the call of the dispatcher.",
    ),
    "claim": (
        "What a claim costs where claims become slow",
        "Every claim of a relay under steady traffic, against those of another on a clean table at the same time.",
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
    parts = [INTRODUCTION, _run(sections), _bars(saved, sections), WHERE_IT_GOES]
    parts += [_section(section) for section in sections]
    return "\n".join(parts)


def _run(sections: list[Section]) -> str:
    versions: dict[str, dict[str, None]] = {}
    for section in sections:
        for name, version in (section.run["versions"] | section.details.get("versions", {})).items():
            versions.setdefault(name, {})[version] = None
    machines = dict.fromkeys(_machine(section.run["machine"]) for section in sections)
    shown = ", ".join(f"{name} {' and '.join(each)}" for name, each in versions.items())
    lines = ["## The run", "", f"Machine: {'; '.join(machines)}.", "", f"Versions: {shown}.", ""]
    lines += [
        "| section | commit | form | date, UTC | seconds | other work, cores |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {TEXTS[section.name][0]} | `{section.run['versions'].get('commit', 'unknown')}` | `{section.run['mode']}` |"
        f" {datetime.fromisoformat(section.run['date']):%Y-%m-%d %H:%M} | {section.run['seconds']:.0f} |"
        f" {_cores(section.run['others_cores'])} |"
        for section in sections
    ]
    lines += [
        "",
        "Other work is what processes that have no part in the run took of the machine meanwhile.",
        "",
    ]
    busy = [
        TEXTS[section.name][0] for section in sections if (section.run["others_cores"] or 0.0) > OTHERS_CORES
    ]
    if busy:
        lines += [
            (
                f"The machine was busy with other work during: {'; '.join(busy)}. Spreads are wide there, and bars"
                " that are missed may be met on a quiet machine, or the other way round."
            ),
            "",
        ]
    return "\n".join(lines)


def _cores(others: float | None) -> str:
    return "not known" if others is None else f"{others:.2f}"


def _machine(machine: dict[str, Any]) -> str:
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, {machine['system']}"
    )


def _bars(saved: dict[str, Any], sections: list[Section]) -> str:
    every = [each for section in sections for each in section.figures if each.bar]
    missing = [each for section in sections for each in section.missing]
    counts = Counter(saved["verdicts"].values())
    shown = ", ".join(f"{counts[each]} {each}" for each in Verdict if counts[each])
    lines = ["## The bars", "", f"What the project holds itself to: {shown}.", "", VERDICTS]
    lines += [
        "| name in the JSON | what | bar | measured | lowest to highest | |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{each.name}` | {each.text} | {each.bar} | {figures.shown(each.value)} {each.unit} |"
        f" {figures.shown(each.lowest)} to {figures.shown(each.highest)} | {each.verdict.shown} |"
        for each in every
    ]
    lines += [
        f"| `{each.name}` | {each.text} | {each.bar} | not measured: {each.why} | | {Verdict.NOT_MEASURED.shown} |"
        for each in missing
    ]
    return "\n".join([*lines, ""])


def _section(section: Section) -> str:
    title, text = TEXTS[section.name]
    return "\n".join([f"## {title}", "", text, "", figures.report(section), ""])


def unfit(saved: dict[str, Any]) -> str:
    """Why a run is not one to show; empty when it is."""
    sections = figures.sections_of(saved)
    if smoke := [section.name for section in sections if section.run["mode"] == "smoke"]:
        return f"measured at the smallest size: {', '.join(smoke)}"
    if saved["failed"]:
        return f"failed to run: {', '.join(saved['failed'])}"
    if found := bars.gaps(saved):
        return "; ".join(found)
    if lacking := bars.of(sections) - {*saved.get("bars", ())}:
        return f"of before there were these bars: {', '.join(sorted(lacking))}"
    if dirty := [section.name for section in sections if section.run["versions"]["commit"].endswith("+")]:
        return f"measured with files that are in no commit: {', '.join(dirty)}"
    absent = TEXTS.keys() - {section.name for section in sections}
    return f"not measured: {', '.join(sorted(absent))}" if absent else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="the JSON of a run of every benchmark")
    given = parser.parse_args()
    try:
        saved = figures.read(given.file)
        if problem := unfit(saved):
            raise ValueError(problem)
        text = page(saved)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        print(f"{given.file} is not a run to show: {error}")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    if given.file.resolve() != RESULTS:
        figures.save(RESULTS, saved)
    print(f"wrote {PAGE.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
