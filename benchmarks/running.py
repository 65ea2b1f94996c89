"""Running benchmarks, some or all, on one PostgreSQL, and putting together what they found."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import bars, common, environment, figures, machine, plots
from benchmarks.catalogue import BENCHMARKS, Mode, listing
from benchmarks.common import Place
from benchmarks.figures import Section
from benchmarks.verdicts import Verdict
from tests.services.sources import Missing as NotThere
from tests.services.sources import Unavailable
from tests.writable import unwritable

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def measure(place: Place, mode: Mode, names: Sequence[str]) -> Iterator[tuple[str, Section | str]]:
    """Each benchmark's name and its section, with how it was measured; or why it failed."""
    about = {"mode": mode, "machine": machine.description(), "versions": machine.versions(place.dsn)}
    for name in names:
        expected = BENCHMARKS[name].seconds(mode)
        print(f"== {name}: about {expected} s", file=sys.stderr, flush=True)
        date, began, others = datetime.now(UTC), time.monotonic(), machine.OtherWork(place.processes)
        try:
            section: Section = importlib.import_module(BENCHMARKS[name].module).run(place, mode)
        except Exception as error:
            # One that fails must not take the others' figures with it.
            traceback.print_exc()
            yield name, f"{type(error).__name__}: {error}"
            continue
        took = round(time.monotonic() - began, 1)
        when = {"date": date.isoformat(timespec="seconds"), "seconds": took}
        section = replace(section, run=about | when | {"others_cores": others.cores()})
        if mode is Mode.SMOKE:
            section = section.unjudged()
        print(figures.report(section), end="\n\n", flush=True)
        print(f"== {name}: {took:g} s", file=sys.stderr, flush=True)
        yield name, section


def merged(older: dict[str, Any], sections: Sequence[Section], failed: dict[str, str]) -> dict[str, Any]:
    """A saved run with these sections in the place of its own; each says itself when and how it was measured.

    A benchmark that failed now keeps its older section, and is told to have failed.
    """
    found = {section.name: section for section in (*figures.sections_of(older), *sections)}
    ordered = [found[each.title] for each in BENCHMARKS.values() if each.title in found]
    done = {name for name, each in BENCHMARKS.items() if each.title in {section.name for section in sections}}
    still = {name: why for name, why in older["failed"].items() if name not in done}
    return assembled(ordered, still | failed)


def assembled(sections: Sequence[Section], failed: dict[str, str]) -> dict[str, Any]:
    """What is saved: the form is ``mixed`` where sections were measured in different ones, ``bars`` what they had to
    be judged by."""
    modes = {str(section.run["mode"]) for section in sections}
    return figures.content(
        sections,
        mode=modes.pop() if len(modes) == 1 else "mixed" if modes else "none",
        date=max((section.run["date"] for section in sections), default=None),
        duration_s=round(sum(section.run["seconds"] for section in sections), 1),
        failed=failed,
        bars=sorted(bars.of(sections)),
    )


def verdict(saved: dict[str, Any]) -> str:
    """One paragraph: what was met, missed, could not be told, and failed to run."""
    by_name = {each.name: each for section in figures.sections_of(saved) for each in section.figures}
    verdicts: dict[str, str] = saved["verdicts"]
    counts = ((each, sum(found == each for found in verdicts.values())) for each in Verdict)
    lines = [f"{len(verdicts)} bars: " + "; ".join(f"{each} {n}" for each, n in counts if n) + "."]
    for name in saved["missed"]:
        each = by_name[name]
        lines.append(
            f"{each.verdict.capitalize()}: {name} is {each.value:.3g} ({each.lowest:.3g} to {each.highest:.3g}),"
            f" the bar is {each.bar} ({each.text})."
        )
    lines += [f"Not measured: {name}: {why}" for name, why in saved["missing"].items()]
    lines += [f"Failed to run: {name}: {reason}" for name, reason in saved["failed"].items()]
    lines += [f"Not as the code says: {gap}." for gap in bars.gaps(saved)]
    return "\n".join(lines)


def main(description: str | None, only: str | None = None) -> int:
    """The command line of all benchmarks, or of the one whose name is given.

    Ends with 1 when a benchmark failed to run, or a figure could not be measured or is not there; a missed bar does not
    fail a run, for a busy machine misses bars too. With 130 when it is interrupted: what was measured until then is
    told and kept.
    """
    try:
        return _main(description, [only] if only else list(BENCHMARKS))
    except (KeyboardInterrupt, CancelledError):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _main(description: str | None, names: list[str]) -> int:
    parser = _parser(description, names)
    given = parser.parse_args()
    if given.list:
        print(listing(given.only))
        return 0
    try:
        older = _checked(given)
    except ValueError as error:
        parser.error(str(error))
    with ExitStack() as stack:
        try:
            place = stack.enter_context(common.place(given.dsn))
        except (NotThere, Unavailable, ValueError) as error:
            print(f"There is no PostgreSQL to measure on: {error}", file=sys.stderr)
            return 1
        return _measured(place, given, older)


def _measured(place: Place, given: argparse.Namespace, older: dict[str, Any] | None) -> int:
    """Run what was asked for, tell it and keep it; the exit code."""
    began = time.monotonic()
    sections: list[Section] = []
    failed: dict[str, str] = {}
    now = assembled(sections, failed)
    try:
        for name, found in measure(place, given.mode, given.only):
            if isinstance(found, Section):
                sections.append(found)
            else:
                failed[name] = found
            # Saved each time: a run that is broken off later has lost nothing.
            now = assembled(sections, failed)
            if given.json is not None:
                figures.save(given.json, now)
            if given.into is not None:
                figures.save(given.into, now if older is None else merged(older, sections, failed))
    except (KeyboardInterrupt, CancelledError):
        if sections or failed:
            print(verdict(now))
        raise
    if given.plots is not None:
        plots.draw(given.plots, sections)
    print(verdict(now))
    print(f"{time.monotonic() - began:.0f} s in all.")
    return 1 if failed or now["missing"] or bars.gaps(now) else 0


def _checked(given: argparse.Namespace) -> dict[str, Any] | None:
    """The run to add to, if there is one. Raises ValueError for what would come out only after minutes."""
    environment.pgbench()
    environment.brokers()
    if given.dsn is not None:
        try:
            psycopg.connect(given.dsn, connect_timeout=10).close()
        except psycopg.Error as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"--dsn names no PostgreSQL that can be used: {reason}") from None
    for name in ("json", "into"):
        file: Path | None = getattr(given, name)
        if file is not None and file.is_dir():
            raise ValueError(f"--{name} {file} is a folder; name a file")
        if file is not None and (reason := _no_file(file)):
            raise ValueError(f"--{name} {file} cannot be written: {reason}")
    if given.plots is not None and (reason := _no_folder(given.plots)):
        raise ValueError(f"--plots {given.plots} is no folder that can be made: {reason}")
    if given.into is None or not given.into.exists():
        return None
    try:
        older = figures.read(given.into)
    except ValueError as error:
        raise ValueError(f"--into {given.into} cannot be added to: {error}") from None
    larger = {str(section.run.get("mode")) for section in figures.sections_of(older)} - {str(Mode.SMOKE)}
    if given.mode is Mode.SMOKE and larger:
        raise ValueError(
            f"--into {given.into} has figures of another form ({', '.join(sorted(larger))}), which those of --smoke,"
            " that mean nothing, would replace; name another file"
        )
    return older


def _no_file(file: Path) -> str:
    """Why there can be no such file; empty when there can. Folders above it are made."""
    return _no_folder(file.parent) or unwritable(file)


def _no_folder(folder: Path) -> str:
    """Why there can be no such folder; empty when there now is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return str(error.strerror)
    return unwritable(folder / ".outbox-benchmarks")


def _parser(description: str | None, names: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dsn", help="a PostgreSQL database; a server is started without it")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_const", dest="mode", const=Mode.QUICK, help="rougher figures")
    size.add_argument(
        "--smoke", action="store_const", dest="mode", const=Mode.SMOKE, help="seconds; no judgement"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--into", type=Path, help="put them in the place of those that this file has")
    parser.add_argument("--plots", type=Path, help="also draw the figures into this folder, as SVG")
    parser.add_argument("--list", action="store_true", help="about how long each takes, and no run")
    if len(names) > 1:
        parser.add_argument("--only", type=_names, help="names, with commas between them")
    parser.set_defaults(mode=Mode.FULL, only=names)
    return parser


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return [name for name in BENCHMARKS if name in names]
